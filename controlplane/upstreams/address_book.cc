// SPDX-License-Identifier: Apache-2.0
#include "controlplane/upstreams/address_book.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "dataplane/rpc/message.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::upstreams {
namespace {

std::string to_text(const std::vector<PeerAddress>& addresses) {
  std::string text;
  for (const PeerAddress& address : addresses) text += (text.empty() ? "" : ", ") + to_string(address);
  return text;
}

/// Whether the server has the program; one that asks for a better credential has it. Empty: no reply.
bool is_well(std::span<const std::byte> reply) {
  xdr::Reader reader(reply);
  const auto decoded = rpc::decode_reply(reader);
  return decoded.ok && (decoded.header.stat == rpc::ReplyStat::Denied || decoded.header.success());
}

}  // namespace

AddressBook::AddressBook(const segment::UpstreamConfig& upstream, tasks::Arena& arena, LookUp look_up)
    : upstream_(upstream), arena_(arena), look_up_(std::move(look_up)) {
  std::memcpy(list_.name, upstream_.name, sizeof list_.name);
  list_.port = upstream_.port;
  for (std::uint32_t i = 0; i < upstream_.host_count; ++i) {
    Host& host = *hosts_.emplace_back(std::make_unique<Host>());
    host.text = upstream_.hosts[i].data();
    const auto address = parse_address(host.text);
    host.is_name = !address;
    if (address) host.addresses = {*address};
  }
  collect();
}

void AddressBook::hurry(std::uint64_t now_ns) {
  for (const auto& host : hosts_)
    host->next_ns = std::min(host->next_ns, std::max(now_ns, host->begun_ns + kUrgentLookupNs));
}

/// All addresses once, the first hosts' first. An address that was there before keeps its counts.
void AddressBook::collect() {
  std::vector<std::unique_ptr<Check>> checks;
  for (const auto& host : hosts_)
    for (const PeerAddress& address : host->addresses) {
      const auto same = [&](const auto& check) { return check != nullptr && check->address == address; };
      if (checks.size() == segment::kMaxUpstreamAddresses || std::any_of(checks.begin(), checks.end(), same))
        continue;
      const auto known = std::find_if(checks_.begin(), checks_.end(), same);
      checks.push_back(known != checks_.end() ? std::move(*known) : std::make_unique<Check>());
      checks.back()->address = address;
    }
  checks_ = std::move(checks);
  if (checks_.size() == 1) {  // it is not asked any more
    auto only = std::make_unique<Check>();
    only->address = checks_[0]->address;
    checks_[0] = std::move(only);
  }
  write_list();
}

void AddressBook::write_list() {
  list_.count = static_cast<std::uint32_t>(checks_.size());
  list_.addresses = {};
  for (std::size_t i = 0; i < checks_.size(); ++i)
    list_.addresses[i] = {
        .address = checks_[i]->address, .answers = checks_[i]->answers, .failures = checks_[i]->failures};
  changed_ = true;
}

void AddressBook::look_up_hosts(std::uint64_t now_ns) {
  for (const auto& host : hosts_) {
    if (!host->is_name) continue;
    if (auto result = host->lookup.take()) found(*host, std::move(*result), now_ns);
    if (host->lookup.running() || now_ns < host->next_ns) continue;
    const bool begun = host->lookup.begin(arena_, look_up_, host->text);
    host->next_ns = now_ns + (begun ? kLookupNs : kCrowdedLookupNs);
    if (begun) host->begun_ns = now_ns;
  }
}

void AddressBook::found(Host& host, LookupResult result, std::uint64_t now_ns) {
  if (result.addresses.empty()) {
    host.next_ns = now_ns + kUrgentLookupNs;
    if (std::exchange(host.problem, result.problem) == result.problem) return;
    spdlog::warn(
        "Upstream '{}': '{}' cannot be resolved ({}): {}", upstream_.name, host.text, result.problem,
        host.addresses.empty() ? "nothing is sent there until it can" : "its addresses stay as they were");
    return;
  }
  host.problem.clear();
  const auto before = std::exchange(host.addresses, result.addresses);
  if (before == host.addresses) return;
  spdlog::info("Upstream '{}': '{}' is at {}", upstream_.name, host.text, to_text(host.addresses));
  collect();
}

void AddressBook::ask(Check& check, std::uint64_t now_ns) {
  check.waits = true;
  check.next_ns = now_ns + segment::kAddressCheckNs;
  check.link.set_server(mount::server_at(check.address, static_cast<std::uint16_t>(upstream_.port), false));
  rpc::CallHeader null;
  null.program = upstream_.routes[0].program;
  null.version = upstream_.routes[0].version;
  std::array<std::byte, rpc::kMinCallBytes> call;
  xdr::Writer writer(call);
  rpc::encode_call(writer, null);
  check.link.pass_on(call, now_ns, check.next_ns,
                     [this, &check](mount::Failure, auto reply) { answered(check, is_well(reply)); });
}

void AddressBook::answered(Check& check, bool well) {
  check.waits = false;
  const bool was_bad = check.failures >= segment::kBadChecks;
  if (well) {
    ++check.answers;
    check.failures = 0;
    if (was_bad) spdlog::info("Upstream '{}' answers again at {}", upstream_.name, to_string(check.address));
  } else {
    ++check.failures;
    check.answers = 0;
    if (check.failures == segment::kBadChecks) {
      spdlog::warn("Upstream '{}' does not answer at {}", upstream_.name, to_string(check.address));
      hurry(now_ns_);
    }
  }
  write_list();
}

void AddressBook::prepare(mount::PollSet& set) {
  for (const auto& host : hosts_)
    if (host->is_name && !host->lookup.running()) set.wake_at(host->next_ns);
  if (checks_.size() < 2) return;
  for (const auto& check : checks_) {
    check->link.prepare(set);
    if (!check->waits) set.wake_at(check->next_ns);
  }
}

bool AddressBook::turn(const mount::PollSet& set, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  look_up_hosts(now_ns);
  if (checks_.size() > 1)
    for (const auto& check : checks_) {
      if (!check->waits && now_ns >= check->next_ns) ask(*check, now_ns);
      check->link.turn(set, now_ns);
    }
  return std::exchange(changed_, false);
}

}  // namespace sluice::upstreams
