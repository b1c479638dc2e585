// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/segment_exports.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "controlplane/mount/allowed.h"
#include "controlplane/mount/protocol.h"
#include "controlplane/mount/upstream_exports.h"
#include "dataplane/base/network.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/layout.h"

namespace sluice::mount {
namespace {

/// Returns the number of the export that `path` is in. There is at most one, because exports do not overlap.
std::optional<std::uint32_t> export_of(const segment::ConfigBlock& block, std::string_view path) {
  for (std::uint32_t i = 0; i < block.exports.size(); ++i)
    if (block.exports[i].in_use != 0 && is_at_or_below(path, block.exports[i].path)) return i;
  return std::nullopt;
}

MountAnswer to_mount_answer(const segment::PathAnswer& answer) {
  switch (const auto status = static_cast<MountStatus>(answer.status)) {
    case MountStatus::Ok:
      if (answer.handle_bytes == 0) break;
      return {MountStatus::Ok, {answer.handle, answer.handle + answer.handle_bytes}};
    case MountStatus::NoEnt:
    case MountStatus::NotDir:
    case MountStatus::NameTooLong:
      return {status, {}};
    default:
      break;
  }
  return {MountStatus::ServerFault, {}};
}

}  // namespace

SegmentExports::SegmentExports(const segment::Layout& layout)
    : layout_(layout), number_(segment::monotonic_ns()) {}

void SegmentExports::list(const Asker& asker, OnList done) {
  std::vector<std::string> paths;
  if (const auto published = layout_.config.read_copy())
    for (const segment::ExportConfig& entry : published->exports)
      if (entry.in_use != 0 && allowed(entry.allowed, entry.allowed_count, asker.address))
        paths.emplace_back(entry.path);
  done(&paths);
}

void SegmentExports::mount(const std::string& path, const Asker& asker, OnMount done) {
  now_ns_ = asker.now_ns;
  const auto published = layout_.config.read_copy();
  if (!published) return done({MountStatus::ServerFault, {}});
  const std::optional<std::string> normalized = normalized_path(path);
  if (!normalized) return done({MountStatus::NoEnt, {}});
  const auto number = export_of(*published, before_parent(*normalized));
  if (!number) return done({MountStatus::NoEnt, {}});
  const segment::ExportConfig& entry = published->exports[*number];
  if (!allowed(entry.allowed, entry.allowed_count, asker.address)) return done({MountStatus::Acces, {}});
  if (*normalized == entry.path) return done(root(*number));
  if (normalized->size() >= segment::kMaxMountPathBytes) return done({MountStatus::NameTooLong, {}});
  if (!room_for(asker)) return done({MountStatus::ServerFault, {}});
  waiters_.push_back({*normalized, *number, network_of(asker.address), asker.connected,
                      asker.now_ns + kPathAnswerNs, std::move(done)});
  if (waiters_.size() == 1) ask_next();
}

MountAnswer SegmentExports::root(std::uint32_t export_number) const {
  const auto info = segment::checked(layout_.exports[export_number]);
  if (!info || info->in_use == 0 || info->root_handle_bytes == 0) return {MountStatus::ServerFault, {}};
  return {MountStatus::Ok, {info->root_handle, info->root_handle + info->root_handle_bytes}};
}

bool SegmentExports::room_for(const Asker& asker) const {
  const PeerAddress network = network_of(asker.address);
  std::size_t of_network = 0;
  std::size_t datagrams = 0;
  for (const Waiter& waiter : waiters_) {
    of_network += waiter.network == network ? 1 : 0;
    datagrams += waiter.connected ? 0 : 1;
  }
  return waiters_.size() < kMaxWaiting && of_network < kMaxWaitingOfNetwork &&
         (asker.connected || datagrams < kMaxWaitingDatagrams);
}

void SegmentExports::ask_next() {
  segment::PathQuestion question{.number = ++number_, .export_number = waiters_.front().export_number};
  waiters_.front().path.copy(question.path, sizeof question.path - 1);
  layout_.path_question.write(question);
}

/// The waiter leaves the queue first, because the reply may bring the client's next call.
void SegmentExports::finish_first(const MountAnswer& answer) {
  const OnMount done = std::move(waiters_.front().done);
  waiters_.pop_front();
  if (!waiters_.empty()) ask_next();
  done(answer);
}

void SegmentExports::prepare(PollSet& set) {
  if (!waiters_.empty()) set.wake_at(now_ns_ + kPathPollNs);
}

void SegmentExports::turn(const PollSet&, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (waiters_.empty()) return;
  if (const auto answer = segment::checked(layout_.path_answer); answer && answer->number == number_)
    finish_first(to_mount_answer(*answer));
  fail_late();
}

/// The order of the queue is that of the deadlines.
void SegmentExports::fail_late() {
  while (!waiters_.empty() && now_ns_ >= waiters_.front().deadline_ns) {
    if (now_ns_ >= next_line_ns_) {
      next_line_ns_ = now_ns_ + kSilenceLineNs;
      log::warn("MOUNT of '{}' failed: the data plane did not answer within {} s", waiters_.front().path,
                kPathAnswerNs / 1'000'000'000);
    }
    finish_first({MountStatus::ServerFault, {}});
  }
}

}  // namespace sluice::mount
