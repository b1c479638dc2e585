// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/upstream_exports.h"

#include <netinet/in.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>

#include "controlplane/mount/network.h"

namespace sluice::mount {

UpstreamExports::UpstreamExports(const segment::UpstreamConfig& upstream, Where where,
                                 MountStatistics& statistics, std::uint16_t rpcbind_port)
    : upstream_(upstream),
      where_(std::move(where)),
      statistics_(statistics),
      rpcbind_port_(rpcbind_port),
      port_(static_cast<std::uint16_t>(upstream.mount_port)) {}

/// False: there is none yet.
bool UpstreamExports::find_address() {
  const auto address = where_();
  if (!address || *address == address_) return address.has_value();
  address_ = *address;
  if (upstream_.mount_port == 0) port_ = 0;
  rpcbind_.set_server(server_at(address_, rpcbind_port_, false));
  return true;
}

void UpstreamExports::mount(const std::string& path, const Asker& asker, OnMount done) {
  if (!allowed(upstream_.allowed, upstream_.allowed_count, asker.address))
    return done({MountStatus::Acces, {}});
  ask({false, path}, asker, [done = std::move(done)](const Answer* answer) {
    done(answer != nullptr ? answer->mount : MountAnswer{MountStatus::ServerFault, {}});
  });
}

void UpstreamExports::list(const Asker& asker, OnList done) {
  if (!allowed(upstream_.allowed, upstream_.allowed_count, asker.address)) {
    const std::vector<std::string> none;
    return done(&none);
  }
  ask({true, {}}, asker,
      [done = std::move(done)](const Answer* answer) { done(answer != nullptr ? &answer->paths : nullptr); });
}

void UpstreamExports::ask(const Subject& subject, const Asker& asker,
                          std::function<void(const Answer*)> done) {
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
    report(Failure::Unresolved);
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

bool UpstreamExports::room_for(const Asker& asker) const {
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

/// Asks the upstream's rpcbind; one question for all that wait for the port.
void UpstreamExports::find_port(const Subject& subject) {
  without_port_.push_back(subject);
  if (std::exchange(finding_port_, true)) return;
  std::array<std::byte, 64> room;
  xdr::Writer arguments(room);
  const bool four = is_mapped_ipv4(address_);
  if (four)
    arguments.words(kMountProgram, kMountVersion, IPPROTO_TCP, 0);
  else
    encode(arguments, Registration{.netid = "tcp6", .address = {}, .owner = {}});
  rpcbind_.call(four ? kGetPort : kGetAddress, arguments.written(), false, now_ns_, now_ns_ + kQuestionNs,
                [this](Failure failure, xdr::Reader results) { port_found(failure, results); });
}

void UpstreamExports::port_found(Failure failure, xdr::Reader results) {
  finding_port_ = false;
  port_ = 0;
  if (failure == Failure::None) {
    const std::uint32_t port =
        is_mapped_ipv4(address_) ? results.u32() : port_of_universal(results.string(kMaxName));
    if (results.ok() && port <= 65535) port_ = static_cast<std::uint16_t>(port);
    if (port_ == 0) failure = Failure::Unreachable;  // it has no MOUNT server
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
  mount_.set_server(server_at(address_, port_, upstream_.privileged_port != 0));
  std::array<std::byte, xdr::kUnit + xdr::padded(kMaxPath)> room;
  xdr::Writer arguments(room);
  if (!subject.list) arguments.string(subject.path);
  mount_.call({kMountProgram, kMountVersion, subject.list ? kExport : kMnt}, arguments.written(), true,
              now_ns_, at->second.deadline_ns,
              [this, subject](Failure failure, xdr::Reader results) { replied(subject, failure, results); });
}

void UpstreamExports::replied(const Subject& subject, Failure failure, xdr::Reader results) {
  const auto at = questions_.find(subject);
  if (at == questions_.end()) return;
  // Its server may have come back at another port.
  if (failure == Failure::Unreachable && upstream_.mount_port == 0 && now_ns_ < at->second.deadline_ns &&
      !std::exchange(at->second.asked_port_twice, true)) {
    port_ = 0;
    return find_port(subject);
  }
  if (failure != Failure::None) return finish(subject, failure, nullptr);
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
  if (!sound) return finish(subject, Failure::Refused, nullptr);
  remember(subject, answer);
  finish(subject, Failure::None, &answer);
}

void UpstreamExports::finish(const Subject& subject, Failure failure, const Answer* answer) {
  auto question = questions_.extract(subject);
  if (question.empty()) return;
  if (failure == Failure::TimedOut)
    count(statistics_.questions_timed_out);
  else if (failure != Failure::None)
    count(statistics_.questions_failed);
  report(failure);
  for (const Waiter& waiter : question.mapped().waiters) waiter.done(answer);
}

/// The one that ends first gives way.
void UpstreamExports::remember(const Subject& subject, const Answer& answer) {
  if (answers_.size() >= kMaxAnswers && !answers_.contains(subject))
    answers_.erase(std::min_element(answers_.begin(), answers_.end(), [](const auto& a, const auto& b) {
      return a.second.good_until_ns < b.second.good_until_ns;
    }));
  Answer& kept = answers_[subject] = answer;
  kept.good_until_ns = now_ns_ + kAnswerAgeNs;
}

/// Changes only, and not each: otherwise clients would fill the log.
void UpstreamExports::report(Failure failure) {
  if (failure == reported_ || now_ns_ < next_report_ns_) return;
  reported_ = failure;
  next_report_ns_ = now_ns_ + kReportNs;
  if (failure == Failure::None)
    spdlog::info("MOUNT of upstream '{}' answers again", upstream_.name);
  else
    spdlog::warn("MOUNT of upstream '{}' {}", upstream_.name, to_string(failure));
}

void UpstreamExports::prepare(PollSet& set) {
  rpcbind_.prepare(set);
  mount_.prepare(set);
}

void UpstreamExports::turn(const PollSet& set, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  rpcbind_.turn(set, now_ns);
  mount_.turn(set, now_ns);
}

}  // namespace sluice::mount
