// SPDX-License-Identifier: Apache-2.0
//
// Exports of one upstream, and of several upstreams.
#include "controlplane/mount/exports.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "controlplane/mount/export_sources.h"
#include "controlplane/mount/protocol.h"
#include "dataplane/base/net_address.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/layout.h"

namespace sluice::mount {
namespace {

/// Paths of an upstream that has none here.
const ExportPaths kNoPaths{.prefix = "//", .exports = {}};

}  // namespace

ExportPaths export_paths_of(const segment::Layout& layout, const std::string& upstream) {
  if (const auto published = layout.config.read_copy())
    for (const segment::UpstreamConfig& entry : published->upstreams)
      if (upstream == entry.name && entry.removed == 0) return export_paths(entry);
  return kNoPaths;
}

std::vector<segment::UpstreamConfig> group_in_force(const segment::Layout& layout) {
  std::vector<segment::UpstreamConfig> group;
  const auto published = layout.config.read_copy();
  const auto places = layout.upstream_places.read();
  if (!published || !places || published->generation != layout.generation_applied.load()) return group;
  const auto count = std::min(published->upstream_count, segment::kMaxUpstreams);
  for (const segment::UpstreamConfig& entry : std::span(published->upstreams).first(count))
    if (entry.is_mounted_here() && entry.removed == 0 && places->serves(entry.name)) group.push_back(entry);
  return group;
}

UpstreamExports::UpstreamExports(const segment::UpstreamConfig& upstream, Where where,
                                 MountStatistics& statistics, std::uint16_t rpcbind_port, Ports client_ports)
    : upstream_(upstream),
      where_(std::move(where)),
      statistics_(statistics),
      rpcbind_port_(rpcbind_port),
      client_ports_(client_ports),
      port_(static_cast<std::uint16_t>(upstream.mount_port)) {}

/// Updates the upstream's address. Returns false if it is not known yet.
bool UpstreamExports::find_address() {
  const auto address = where_();
  if (!address || *address == address_) return address.has_value();
  address_ = *address;
  if (upstream_.mount_port == 0) port_ = 0;
  rpcbind_.set_server(onc_rpc::server_at(address_, rpcbind_port_, false));
  return true;
}

void UpstreamExports::mount(const std::string& path, const onc_rpc::Asker& asker, OnMount done) {
  const bool port_is_allowed = client_ports_ == Ports::Any || asker.privileged;
  if (!port_is_allowed || !allowed(upstream_.allowed, upstream_.allowed_count, asker.address))
    return done({MountStatus::Acces, {}});
  ask({false, path}, asker, [done = std::move(done)](const Answer* answer) {
    done(answer != nullptr ? answer->mount : MountAnswer{MountStatus::ServerFault, {}});
  });
}

void UpstreamExports::list(const onc_rpc::Asker& asker, OnList done) {
  if (!allowed(upstream_.allowed, upstream_.allowed_count, asker.address)) {
    const std::vector<std::string> none;
    return done(&none);
  }
  ask({true, {}}, asker,
      [done = std::move(done)](const Answer* answer) { done(answer != nullptr ? &answer->paths : nullptr); });
}

void UpstreamExports::ask(const Subject& subject, const onc_rpc::Asker& asker,
                          Function<void(const Answer*)> done) {
  now_ns_ = asker.now_ns;
  if (const Answer* known = remembered(subject, asker.now_ns)) {
    count(statistics_.questions_cached);
    return done(known);
  }
  if (!room_for(asker)) {
    count(statistics_.questions_refused);
    return done(nullptr);
  }
  if (!find_address()) {
    count(statistics_.questions_failed);
    report(onc_rpc::Failure::Unresolved);
    return done(nullptr);
  }
  const auto [at, first] = questions_.try_emplace(subject);
  at->second.waiters.push_back({network_of(asker.address), asker.connected, std::move(done)});
  if (!first) return;
  count(statistics_.questions);
  at->second.deadline_ns = asker.now_ns + kQuestionNs;
  if (upstream_.mount_port == 0 && asker.now_ns >= port_until_ns_) port_ = 0;
  if (port_ == 0)
    find_port(subject);
  else
    send(subject);
}

bool UpstreamExports::room_for(const onc_rpc::Asker& asker) const {
  const PeerAddress network = network_of(asker.address);
  std::size_t all = 0;
  std::size_t of_network = 0;
  std::size_t datagrams = 0;
  for (const auto& [subject, question] : questions_)
    for (const Waiter& waiter : question.waiters) {
      ++all;
      of_network += waiter.network == network ? 1 : 0;
      datagrams += waiter.connected ? 0 : 1;
    }
  return all < kMaxWaiting && of_network < kMaxWaitingOfNetwork &&
         (asker.connected || datagrams < kMaxWaitingDatagrams);
}

const UpstreamExports::Answer* UpstreamExports::remembered(const Subject& subject,
                                                           std::uint64_t now_ns) const {
  const auto at = answers_.find(subject);
  return at != answers_.end() && now_ns < at->second.good_until_ns ? &at->second : nullptr;
}

/// Queries the upstream's rpcbind for the port. All questions that need the port share one query.
void UpstreamExports::find_port(const Subject& subject) {
  without_port_.push_back(subject);
  if (std::exchange(finding_port_, true)) return;
  std::array<std::byte, 64> room;
  xdr::Writer arguments(room);
  const bool four = is_mapped_ipv4(address_);
  if (four)
    arguments.words(kMountProgram, kMountVersion, IPPROTO_TCP, 0);
  else
    encode(
        arguments,
        onc_rpc::Registration{
            .program = kMountProgram, .version = kMountVersion, .netid = "tcp6", .address = {}, .owner = {}});
  rpcbind_.call(four ? onc_rpc::kGetPort : onc_rpc::kGetAddress, arguments.written(), false, now_ns_,
                now_ns_ + kQuestionNs,
                [this](onc_rpc::Failure failure, xdr::Reader results) { port_found(failure, results); });
}

void UpstreamExports::port_found(onc_rpc::Failure failure, xdr::Reader results) {
  finding_port_ = false;
  port_ = 0;
  if (failure == onc_rpc::Failure::None) {
    const std::uint32_t port =
        is_mapped_ipv4(address_) ? results.u32()
                                 : onc_rpc::port_of_universal(results.string(onc_rpc::kMaxUniversalAddress));
    if (results.ok() && port <= 65535) port_ = static_cast<std::uint16_t>(port);
    if (port_ == 0) failure = onc_rpc::Failure::Unreachable;  // the upstream has no MOUNT server
  }
  port_until_ns_ = now_ns_ + kPortAgeNs;
  std::deque<Subject> waiting;
  waiting.swap(without_port_);
  for (const Subject& subject : waiting) {
    if (port_ != 0)
      send(subject);
    else
      finish(subject, failure, nullptr);
  }
}

void UpstreamExports::send(const Subject& subject) {
  const auto at = questions_.find(subject);
  if (at == questions_.end()) return;
  mount_.set_server(onc_rpc::server_at(address_, port_, upstream_.privileged_port != 0));
  std::array<std::byte, xdr::kUnit + xdr::padded(kMaxPath)> room;
  xdr::Writer arguments(room);
  if (!subject.list) arguments.string(subject.path);
  mount_.call(
      {kMountProgram, kMountVersion, subject.list ? kExport : kMnt}, arguments.written(), true, now_ns_,
      at->second.deadline_ns,
      [this, subject](onc_rpc::Failure failure, xdr::Reader results) { replied(subject, failure, results); });
}

void UpstreamExports::replied(const Subject& subject, onc_rpc::Failure failure, xdr::Reader results) {
  const auto at = questions_.find(subject);
  if (at == questions_.end()) return;
  // The upstream's server may have restarted at another port.
  if (failure == onc_rpc::Failure::Unreachable && upstream_.mount_port == 0 &&
      now_ns_ < at->second.deadline_ns && !std::exchange(at->second.asked_port_twice, true)) {
    port_ = 0;
    return find_port(subject);
  }
  if (failure != onc_rpc::Failure::None) return finish(subject, failure, nullptr);
  Answer answer;
  bool sound = false;
  if (subject.list) {
    auto paths = decode_paths(results);
    sound = paths.has_value();
    if (sound) answer.paths = std::move(*paths);
  } else {
    auto mounted = decode_mount_answer(results);
    sound = mounted.has_value();
    if (sound) answer.mount = std::move(*mounted);
  }
  if (!sound) return finish(subject, onc_rpc::Failure::Refused, nullptr);
  remember(subject, answer);
  finish(subject, onc_rpc::Failure::None, &answer);
}

void UpstreamExports::finish(const Subject& subject, onc_rpc::Failure failure, const Answer* answer) {
  auto question = questions_.extract(subject);
  if (question.empty()) return;
  if (failure == onc_rpc::Failure::TimedOut)
    count(statistics_.questions_timed_out);
  else if (failure != onc_rpc::Failure::None)
    count(statistics_.questions_failed);
  report(failure);
  for (const Waiter& waiter : question.mapped().waiters) waiter.done(answer);
}

/// Caches an answer, and evicts the entry that expires first if the cache is full.
void UpstreamExports::remember(const Subject& subject, const Answer& answer) {
  if (answers_.size() >= kMaxAnswers && !answers_.contains(subject))
    answers_.erase(std::min_element(answers_.begin(), answers_.end(), [](const auto& a, const auto& b) {
      return a.second.good_until_ns < b.second.good_until_ns;
    }));
  Answer& kept = answers_[subject] = answer;
  kept.good_until_ns = now_ns_ + kAnswerAgeNs;
}

/// Logs a change of the state, at a limited rate, so that clients cannot fill the log.
void UpstreamExports::report(onc_rpc::Failure failure) {
  if (failure == reported_ || now_ns_ < next_report_ns_) return;
  reported_ = failure;
  next_report_ns_ = now_ns_ + kReportNs;
  if (failure == onc_rpc::Failure::None)
    log::info("MOUNT of upstream '{}' answers again", upstream_.name);
  else
    log::warn("MOUNT of upstream '{}' {}", upstream_.name, to_string(failure));
}

void UpstreamExports::prepare(PollSet& set) {
  rpcbind_.prepare(set);
  mount_.prepare(set);
}

void UpstreamExports::poll(const PollSet& set, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  rpcbind_.poll(set, now_ns);
  mount_.poll(set, now_ns);
}

namespace {

constexpr std::size_t kTagBytes = xdr::kUnit;
/// Highest authentication flavor of AUTH_NONE and AUTH_SYS. An RPCSEC_GSS context would belong to a single
/// upstream, and its signatures would cover the file handles.
constexpr std::uint32_t kLastPlainFlavor = 1;

/// Paths of all members, in the order of the members.
struct Listing {
  std::list<std::vector<std::string>> paths;
  std::size_t awaited = 1;  ///< pending replies, plus one while the queries are being sent
  bool answered = false;
  Exports::OnList done;

  void one_less() {
    if (--awaited > 0) return;
    std::vector<std::string> all;
    for (auto& each : paths) std::move(each.begin(), each.end(), std::back_inserter(all));
    done(answered ? &all : nullptr);
  }
};

/// Returns true if the upstream is the only one for NFS 3. Its paths and handles pass unchanged.
bool has_all_paths(const segment::UpstreamConfig& upstream) {
  return upstream.handle_tag == 0;
}

/// Returns true if the UpstreamExports of one configuration can be used for the other.
bool is_asked_like(const segment::UpstreamConfig& one, const segment::UpstreamConfig& other) {
  const auto same = [](const segment::AllowedPrefix& mine, const segment::AllowedPrefix& its) {
    return mine.address == its.address && mine.prefix_bits == its.prefix_bits;
  };
  const auto allowed = [](const segment::UpstreamConfig& of) {
    return std::span(of.allowed).first(std::min(of.allowed_count, segment::kMaxAllowed));
  };
  return std::string_view(one.name) == other.name && one.handle_tag == other.handle_tag &&
         one.mount_port == other.mount_port && one.privileged_port == other.privileged_port &&
         std::ranges::equal(allowed(one), allowed(other), same);
}

}  // namespace

GroupExports::GroupExports(std::vector<Member> members, Parts parts, MountStatistics& statistics,
                           MemberSource source)
    : members_(std::make_move_iterator(members.begin()), std::make_move_iterator(members.end())),
      parts_(std::move(parts)),
      statistics_(statistics),
      source_(std::move(source)) {}

void GroupExports::follow_reloads(std::uint64_t now_ns) {
  const auto in_force = source_.in_force();
  for (Member& member : members_)
    if (member.retired_ns == 0 && !in_force.empty() &&
        std::none_of(in_force.begin(), in_force.end(),
                     [&](const auto& upstream) { return is_asked_like(upstream, member.upstream); }))
      member.retired_ns = now_ns;
  members_.remove_if([now_ns](const Member& member) {
    return member.retired_ns != 0 && now_ns - member.retired_ns > kRetiredNs;
  });
  for (const segment::UpstreamConfig& upstream : in_force) {
    const bool known = std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
      return member.retired_ns == 0 && is_asked_like(upstream, member.upstream);
    });
    if (!known) members_.push_back({upstream, source_.make(upstream)});
  }
}

void GroupExports::mount(const std::string& path, const onc_rpc::Asker& asker, OnMount done) {
  follow_reloads(asker.now_ns);
  for (const Member& member : members_) {
    if (member.retired_ns != 0) continue;
    const auto its_path =
        has_all_paths(member.upstream) ? std::optional(path) : parts_(member.upstream.name).of_upstream(path);
    if (!its_path) continue;
    return member.exports->mount(*its_path, asker,
                                 [this, &member, now_ns = asker.now_ns, done = std::move(done)](
                                     const MountAnswer& answer) { done(tagged(member, answer, now_ns)); });
  }
  done({MountStatus::NoEnt, {}});
}

MountAnswer GroupExports::tagged(const Member& member, MountAnswer answer, std::uint64_t now_ns) {
  if (answer.status != MountStatus::Ok || has_all_paths(member.upstream)) return answer;
  if (answer.handle.size() + kTagBytes > kMaxHandle) {
    count(statistics_.handles_too_long);
    return refused(member, MountStatus::ServerFault,
                   "its file handles have " + std::to_string(answer.handle.size()) +
                       " bytes; an upstream that is one of several for nfs3 may have " +
                       std::to_string(kMaxHandle - kTagBytes),
                   now_ns);
  }
  std::erase_if(answer.flavors, [](std::uint32_t flavor) { return flavor > kLastPlainFlavor; });
  if (answer.flavors.empty())
    return refused(member, MountStatus::Acces,
                   "it requires Kerberos, which is not supported with several upstreams for nfs3", now_ns);
  std::array<std::byte, kTagBytes> tag;
  xdr::store_u32(tag.data(), member.upstream.handle_tag);
  answer.handle.insert(answer.handle.begin(), tag.begin(), tag.end());
  return answer;
}

MountAnswer GroupExports::refused(const Member& member, MountStatus status, const std::string& why,
                                  std::uint64_t now_ns) {
  if (now_ns >= next_line_ns_) {
    next_line_ns_ = now_ns + kRefusalLineNs;
    log::warn("An export of upstream '{}' cannot be mounted here: {}", std::string_view(member.upstream.name),
              why);
  }
  return {status, {}};
}

void GroupExports::list(const onc_rpc::Asker& asker, OnList done) {
  follow_reloads(asker.now_ns);
  const auto listing = std::make_shared<Listing>();
  listing->done = std::move(done);
  for (const Member& member : members_) {
    if (member.retired_ns != 0) continue;
    ++listing->awaited;
    auto& known_as = listing->paths.emplace_back();
    member.exports->list(asker, [this, &member, &known_as, listing](const std::vector<std::string>* paths) {
      if (paths != nullptr) {
        listing->answered = true;
        if (has_all_paths(member.upstream)) {
          known_as = *paths;
        } else {
          const ExportPaths part = parts_(member.upstream.name);
          for (const std::string& path : *paths)
            if (auto clients = part.of_clients(path)) known_as.push_back(std::move(*clients));
        }
      }
      listing->one_less();
    });
  }
  listing->one_less();
}

void GroupExports::prepare(PollSet& set) {
  for (const Member& member : members_) member.exports->prepare(set);
}

void GroupExports::poll(const PollSet& set, std::uint64_t now_ns) {
  for (const Member& member : members_) member.exports->poll(set, now_ns);
}

}  // namespace sluice::mount
