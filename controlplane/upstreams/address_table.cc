// SPDX-License-Identifier: Apache-2.0
#include "controlplane/upstreams/address_table.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "controlplane/tasks/arena.h"
#include "dataplane/log/log.h"
#include "dataplane/rpc/message.h"
#include "dataplane/tcp/sockets.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::upstreams {

LookupResult look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0)
    return {.addresses = {}, .problem = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)};
  LookupResult result;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    sockaddr_storage address{};
    std::memcpy(&address, entry->ai_addr, entry->ai_addrlen);
    result.addresses.push_back(tcp::peer_address(address));
  }
  ::freeaddrinfo(found);
  if (result.addresses.empty()) result.problem = "it has no IP address";
  return result;
}

bool HostLookup::begin(tasks::Arena& arena, const LookUp& look_up, const std::string& host) {
  auto pending = std::make_shared<Pending>();
  const bool begun = arena.start([wanted = std::weak_ptr(pending), look_up, host]() -> tasks::Arena::Done {
    if (wanted.expired()) return {};
    return [wanted, result = look_up(host)] {
      if (const auto waiting = wanted.lock()) *waiting = result;
    };
  });
  if (begun) pending_ = std::move(pending);
  return begun;
}

std::optional<LookupResult> HostLookup::take() {
  if (pending_ == nullptr || !pending_->has_value()) return std::nullopt;
  return std::move(*std::exchange(pending_, nullptr));
}

namespace {

std::string to_text(const std::vector<PeerAddress>& addresses) {
  std::string text;
  for (const PeerAddress& address : addresses) text += (text.empty() ? "" : ", ") + to_string(address);
  return text;
}

/// Returns true if the server has the program. A server that rejects the credential has it. An empty `reply`
/// means that there was none.
bool is_well(std::span<const std::byte> reply) {
  xdr::Reader reader(reply);
  const auto decoded = rpc::decode_reply(reader);
  return decoded.ok && (decoded.header.stat == rpc::ReplyStat::Denied || decoded.header.success());
}

}  // namespace

AddressTable::AddressTable(const segment::UpstreamConfig& upstream, segment::Driver driver,
                           tasks::Arena& arena, LookUp look_up)
    : upstream_(upstream), driver_(driver), arena_(arena), look_up_(std::move(look_up)) {
  std::memcpy(list_.name, upstream_.name, sizeof list_.name);
  list_.port = upstream_.port;
  for (std::uint32_t i = 0; i < upstream_.host_count; ++i) {
    Host& host = *hosts_.emplace_back(std::make_unique<Host>());
    host.text = upstream_.hosts[i].data();
    const auto address = parse_address(host.text);
    host.is_name = !address || address->zone != 0;  // an interface that is recreated gets another index
    if (address) host.addresses = {{.address = *address, .unlisted_since_ns = {}}};
  }
  collect();
}

void AddressTable::hurry(std::uint64_t now_ns) {
  for (const auto& host : hosts_)
    host->next_ns = std::min(host->next_ns, std::max(now_ns, host->begun_ns + kUrgentLookupNs));
}

void AddressTable::adopt(const AddressTable& former) {
  for (const auto& host : hosts_)
    for (const auto& other : former.hosts_) {
      if (!host->is_name || !host->addresses.empty() || host->text != other->text) continue;
      host->addresses = other->addresses;
      host->problem = other->problem;
      host->begun_ns = other->begun_ns;
      host->next_ns = other->lookup.running() ? 0 : other->next_ns;
    }
  collect();
  const bool same_service =
      upstream_.port == former.upstream_.port && upstream_.routes[0] == former.upstream_.routes[0];
  if (!same_service || checks_.size() < 2) return;
  for (const auto& check : checks_)
    for (const auto& other : former.checks_) {
      if (check->address != other->address) continue;
      check->answers = other->answers;
      check->failures = other->failures;
    }
  write_list();
}

/// Returns true if the last answer for some host contains the address.
bool AddressTable::is_listed(const PeerAddress& address) const {
  const auto has_it = [&](const auto& host) {
    return std::any_of(host->addresses.begin(), host->addresses.end(), [&](const Known& known) {
      return known.address == address && !known.unlisted_since_ns;
    });
  };
  return std::any_of(hosts_.begin(), hosts_.end(), has_it);
}

/// Collects each address once, in the order of the hosts. If there are too many, listed addresses take
/// precedence. An address that was in the list before keeps its counters.
void AddressTable::collect() {
  struct Candidate {
    PeerAddress address;
    std::uint32_t host;
    bool listed;
  };
  std::vector<Candidate> all;
  for (std::uint32_t i = 0; i < hosts_.size(); ++i)
    for (const Known& known : hosts_[i]->addresses) {
      const bool listed = !known.unlisted_since_ns;
      const auto same = [&](const Candidate& each) { return each.address == known.address; };
      if ((listed || !is_listed(known.address)) && std::none_of(all.begin(), all.end(), same))
        all.push_back({known.address, i, listed});
    }
  for (std::size_t i = all.size(); i-- > 0 && all.size() > segment::kMaxUpstreamAddresses;)
    if (!all[i].listed) all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
  if (all.size() > segment::kMaxUpstreamAddresses) all.resize(segment::kMaxUpstreamAddresses);
  std::vector<std::unique_ptr<Check>> checks;
  for (const Candidate& each : all) {
    const auto known = std::find_if(checks_.begin(), checks_.end(), [&](const auto& check) {
      return check != nullptr && check->address == each.address;
    });
    checks.push_back(known != checks_.end() ? std::move(*known) : std::make_unique<Check>());
    checks.back()->address = each.address;
    checks.back()->host = each.host;
  }
  checks_ = std::move(checks);
  if (checks_.size() == 1) {  // a single address is not probed
    auto only = std::make_unique<Check>();
    only->address = checks_[0]->address;
    only->host = checks_[0]->host;
    checks_[0] = std::move(only);
  }
  write_list();
}

void AddressTable::write_list() {
  list_.count = static_cast<std::uint32_t>(checks_.size());
  list_.addresses = {};
  for (std::size_t i = 0; i < checks_.size(); ++i)
    list_.addresses[i] = {.address = checks_[i]->address,
                          .answers = checks_[i]->answers,
                          .failures = checks_[i]->failures,
                          .host = checks_[i]->host};
  changed_ = true;
}

void AddressTable::look_up_hosts(std::uint64_t now_ns) {
  for (const auto& host : hosts_) {
    if (!host->is_name) continue;
    if (const auto result = host->lookup.take()) found(*host, *result, now_ns);
    if (host->lookup.running() || now_ns < host->next_ns) continue;
    const bool begun = host->lookup.begin(arena_, look_up_, host->text);
    host->next_ns = now_ns + (begun ? kLookupNs : kCrowdedLookupNs);
    if (begun) host->begun_ns = now_ns;
  }
}

/// Removes addresses that the kernel cannot reach, because they are link-local and the answer does not
/// contain their interface. The kernel connects TCP upstreams and those over verbs. Other devices have a
/// single link, on which such an address may be.
LookupResult AddressTable::usable(LookupResult result) const {
  if (upstream_.transport != segment::Transport::Tcp && driver_ != segment::Driver::Verbs) return result;
  const auto is_useless = [](const PeerAddress& address) {
    return is_link_local(address) && address.zone == 0;
  };
  const auto useless = std::find_if(result.addresses.begin(), result.addresses.end(), is_useless);
  if (useless == result.addresses.end()) return result;
  result.problem = "it is at " + to_string(*useless) +
                   ", which is on every link: configure the address with its interface, as in \"" +
                   to_string(*useless) + "%eth0\"";
  std::erase_if(result.addresses, is_useless);
  return result;
}

void AddressTable::found(Host& host, const LookupResult& answer, std::uint64_t now_ns) {
  const LookupResult result = usable(answer);
  if (result.addresses.empty()) {
    host.next_ns = now_ns + kUrgentLookupNs;
    if (std::exchange(host.problem, result.problem) == result.problem) return;
    log::warn("Upstream '{}': '{}' cannot be resolved ({}): {}", upstream_.name, host.text, result.problem,
              host.addresses.empty() ? "nothing is sent to it until it can be resolved"
                                     : "its previous addresses stay in use");
    return;
  }
  host.problem.clear();
  const auto before = std::exchange(host.addresses, merged(host.addresses, result.addresses, now_ns));
  collect();
  const auto same = [](const Known& one, const Known& other) { return one.address == other.address; };
  if (std::equal(before.begin(), before.end(), host.addresses.begin(), host.addresses.end(), same)) return;
  std::vector<PeerAddress> listed;
  std::vector<PeerAddress> others;
  for (const Known& known : host.addresses)
    (known.unlisted_since_ns ? others : listed).push_back(known.address);
  log::info("Upstream '{}': '{}' is at {}{}", upstream_.name, host.text, to_text(listed),
            others.empty()
                ? ""
                : ". Previous addresses are used for at most an hour, while they answer: " + to_text(others));
}

/// Merges an answer of the name server into the known addresses. Known addresses keep their positions. An
/// address that the answer lacks is dropped if it does not reply to NULL, if it has been unlisted for
/// kUnlistedNs, or if there are too many unlisted addresses.
std::vector<AddressTable::Known> AddressTable::merged(const std::vector<Known>& known,
                                                      const std::vector<PeerAddress>& found,
                                                      std::uint64_t now_ns) const {
  std::vector<Known> all;
  std::uint32_t unlisted = 0;
  for (const Known& each : known) {
    if (std::find(found.begin(), found.end(), each.address) != found.end()) {
      all.push_back({.address = each.address, .unlisted_since_ns = {}});
      continue;
    }
    const std::uint64_t since_ns = each.unlisted_since_ns.value_or(now_ns);
    const bool expired = now_ns > since_ns && now_ns - since_ns >= kUnlistedNs;
    if (expired || is_bad(each.address) || unlisted == kMaxUnlisted) continue;
    all.push_back({.address = each.address, .unlisted_since_ns = since_ns});
    ++unlisted;
  }
  for (const PeerAddress& address : found) {
    const auto same = [&](const Known& each) { return each.address == address; };
    if (all.size() < segment::kMaxUpstreamAddresses && std::none_of(all.begin(), all.end(), same))
      all.push_back({.address = address, .unlisted_since_ns = {}});
  }
  return all;
}

bool AddressTable::is_bad(const PeerAddress& address) const {
  return std::any_of(checks_.begin(), checks_.end(), [&](const auto& check) {
    return check->address == address && check->failures >= segment::kBadChecks;
  });
}

void AddressTable::ask(Check& check, std::uint64_t now_ns) {
  check.waits = true;
  check.next_ns = now_ns + segment::kAddressCheckNs;
  check.link.set_server(onc_rpc::server_at(check.address, static_cast<std::uint16_t>(upstream_.port), false));
  rpc::CallHeader null;
  null.program = upstream_.routes[0].program;
  null.version = upstream_.routes[0].version;
  std::array<std::byte, rpc::kMinCallBytes> call;
  xdr::Writer writer(call);
  rpc::encode_call(writer, null);
  check.link.pass_on(call, now_ns, check.next_ns,
                     [this, &check](onc_rpc::Failure, auto reply) { answered(check, is_well(reply)); });
}

void AddressTable::answered(Check& check, bool well) {
  check.waits = false;
  const bool was_bad = check.failures >= segment::kBadChecks;
  if (well) {
    ++check.answers;
    check.failures = 0;
    if (was_bad) log::info("Upstream '{}' answers again at {}", upstream_.name, to_string(check.address));
  } else {
    ++check.failures;
    check.answers = 0;
    if (check.failures == segment::kBadChecks) {
      log::warn("Upstream '{}' does not answer at {}", upstream_.name, to_string(check.address));
      hurry(now_ns_);
    }
  }
  write_list();
}

void AddressTable::prepare(PollSet& set) {
  for (const auto& host : hosts_)
    if (host->is_name && !host->lookup.running()) set.wake_at(host->next_ns);
  if (checks_.size() < 2) return;
  for (const auto& check : checks_) {
    check->link.prepare(set);
    if (!check->waits) set.wake_at(check->next_ns);
  }
}

bool AddressTable::poll(const PollSet& set, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  look_up_hosts(now_ns);
  if (checks_.size() > 1)
    for (const auto& check : checks_) {
      if (!check->waits && now_ns >= check->next_ns) ask(*check, now_ns);
      check->link.poll(set, now_ns);
    }
  return std::exchange(changed_, false);
}

}  // namespace sluice::upstreams
