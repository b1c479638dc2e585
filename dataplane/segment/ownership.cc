// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/ownership.h"

#include <time.h>

#include <cerrno>
#include <utility>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"

namespace sluice::segment {
namespace {

/// Attempts to lock the file: another process may replace it between open and lock.
constexpr int kTries = 10;
constexpr std::uint64_t kCheckNs = 5'000'000;

void sleep_between_checks() noexcept {
  timespec left{0, kCheckNs};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

constexpr std::uint64_t turns_of(std::uint64_t owner) {
  return owner & 0xffffffff;
}
constexpr std::uint64_t without_turns(std::uint32_t epoch) {
  return std::uint64_t{epoch} << 32;
}

std::string process(std::uint32_t pid) {
  return " (process " + std::to_string(pid) + ")";
}

[[noreturn]] void refuse_beside(std::uint32_t pid, const std::string& name) {
  throw SetupError("Another control plane" + (pid == 0 ? std::string(" is starting, and") : process(pid)) +
                   " owns segment '" + name + "'. Stop it first, or set another segment name.");
}

}  // namespace

ControlOwnership::ControlOwnership(const std::string& name) : name_(name), segment_(new Segment(name)) {
  for (int i = 0; i < kTries; ++i) {
    auto file = PartFile::open(name, Part::Control, PartFile::Access::Write);
    if (file) {
      if (const std::string reason = file->why_untrusted(); !reason.empty())
        throw SetupError("The shared segment " + file->path() + " cannot be used: " + reason +
                         ". Remove it, or set another segment name.");
      if (!reserve(*file)) continue;
    }
    if (segment_->file(Part::Control) == nullptr) make();
    return;
  }
  refuse_beside(0, name_);
}

/// Reserves the next epoch. Returns false if the path no longer leads to this file, because its user has
/// replaced it, or if another control plane has moved the epoch. Otherwise the file is mapped as our part of
/// the segment, or is the one that take() replaces.
bool ControlOwnership::reserve(PartFile& file) {
  const PartFile::Head head = file.head();
  const std::uint32_t epoch = epoch_of(head.owner);
  if (!file_lock::take(file.descriptor(), control_plane_lock(epoch + 1))) refuse_beside(0, name_);
  if (!file.has_its_name()) return false;
  if (!file.defect().empty()) {
    check_other_layout(file);
    replaced_ = std::move(file);
    return true;
  }
  // A control plane that moved the epoch since the first read held this lock before us.
  if (epoch_of(file.head().owner) != epoch) return false;
  static_cast<void>(SLUICE_INVARIANT(segment_->file(Part::Control) == nullptr && epoch_ == 0, segment_state));
  segment_->map(std::move(file));
  segment_->refresh(Part::Data);
  epoch_ = epoch + 1;
  wait_for_predecessor();
  return true;
}

void ControlOwnership::check_other_layout(const PartFile& file) const {
  const PartFile::Head head = file.head();
  const std::uint32_t epoch = epoch_of(head.owner);
  if (head.magic == kMagic && epoch != 0 &&
      file_lock::taken_by_other(file.descriptor(), control_plane_lock(epoch)))
    throw SetupError("A control plane of another release" + process(head.pid) + " owns the shared segment " +
                     file.path() + ". Stop it first.");
}

/// Throws SetupError if a data plane runs: it keeps using the control part that it started with. Otherwise
/// holds the data plane's lock, so that no data plane starts until the new control part is published.
void ControlOwnership::keep_data_plane_away() {
  static_cast<void>(SLUICE_INVARIANT(!away_, segment_state));
  away_ = PartFile::open(name_, Part::Data, PartFile::Access::Read);
  if (!away_ || !away_->why_untrusted().empty()) return;
  const PartFile::Head head = away_->head();
  if (head.magic != kMagic || file_lock::take_shared(away_->descriptor(), kDataPlaneLock)) return;
  const bool other = head.layout_version != kLayoutVersion;
  throw SetupError("A data plane" + std::string(other ? " of another release" : "") + process(head.pid) +
                   " works with segment '" + name_ + "', whose file " + path_of(name_, Part::Control) +
                   " is " + (replaced_ ? "of another release" : "gone") +
                   ". Stop it first, then start both planes of one release.");
}

void ControlOwnership::make() {
  static_cast<void>(SLUICE_INVARIANT(segment_->file(Part::Control) == nullptr && !new_, segment_state));
  keep_data_plane_away();
  segment_->map(PartFile::make(name_, Part::Control));
  segment_->refresh(Part::Data);
  segment_->begin(Part::Control);
  new_ = true;
  epoch_ = 1;
  file_lock::take(segment_->file(Part::Control)->descriptor(), control_plane_lock(epoch_));
}

/// Waits until the predecessor's lock is free or the predecessor counts as stopped. Compares beat counters
/// rather than clocks, because clocks differ between time namespaces.
void ControlOwnership::wait_for_predecessor() {
  static_cast<void>(SLUICE_INVARIANT(epoch_ != 0, segment_state));
  const std::uint32_t predecessor = epoch_ - 1;
  const Heartbeat& heart = layout().control_plane;
  const std::uint64_t beats = heart.beats.load();
  const std::uint64_t since_ns = monotonic_ns();
  while (file_lock::taken_by_other(segment_->file(Part::Control)->descriptor(),
                                   control_plane_lock(predecessor))) {
    if (heart.beats.load() != beats) refuse_beside(heart.pid.load(), name_);
    if (monotonic_ns() - since_ns > kHeartbeatTimeoutNs) {
      stopped_ = predecessor;
      stopped_beats_ = beats;
      if (turns_of(heart.owner.load()) == 0) return;
      throw SetupError(
          "The control plane" + process(heart.pid.load()) + " of segment '" + name_ +
          "' has had no heartbeat for " + std::to_string(kHeartbeatTimeoutNs / 1'000'000'000) +
          " s and is in the middle of a write. It is stopped, or the host is overloaded. Resume it "
          "(kill -CONT), wait for it, or end it (kill -KILL " +
          std::to_string(heart.pid.load()) + "), and start this one again.");
    }
    sleep_between_checks();
  }
}

void ControlOwnership::take() {
  static_cast<void>(SLUICE_INVARIANT(segment_->file(Part::Control) != nullptr && epoch_ != 0, segment_state));
  if (new_)
    take_new();
  else
    take_shown();
}

void ControlOwnership::take_new() {
  static_cast<void>(SLUICE_INVARIANT(segment_->file(Part::Control)->writable(), segment_state));
  static_cast<void>(SLUICE_INVARIANT(epoch_ == 1, segment_state));
  layout().control_plane.owner = without_turns(epoch_);
  if (replaced_) replaced_->unlink();
  if (!segment_->file(Part::Control)->show()) {
    layout().control_plane.owner = 0;
    refuse_beside(0, name_);
  }
  replaced_.reset();
  away_.reset();
}

void ControlOwnership::take_shown() {
  static_cast<void>(SLUICE_INVARIANT(segment_->file(Part::Control)->writable() && !replaced_, segment_state));
  Heartbeat& heart = layout().control_plane;
  if (!file_lock::taken_by_other(segment_->file(Part::Control)->descriptor(), control_plane_lock(epoch_ - 1)))
    stopped_ = 0;
  std::uint64_t owner = heart.owner.load();
  // A predecessor that was killed may have left its write leases in the word.
  const auto may_take = [&] {
    return epoch_of(owner) + 1 == epoch_ &&
           (stopped_ == 0 || (turns_of(owner) == 0 && heart.beats.load() == stopped_beats_));
  };
  while (may_take())
    if (heart.owner.compare_exchange_weak(owner, without_turns(epoch_))) return;
  refuse_beside(heart.pid.load(), name_);
}

std::optional<ControlOwnership::Turn> ControlOwnership::enter() noexcept {
  std::atomic<std::uint64_t>& word = layout().control_plane.owner;
  std::uint64_t owner = word.load(std::memory_order_relaxed);
  while (epoch_of(owner) == epoch_)  // pairs with take_new() and take_shown(): no predecessor writes
    if (word.compare_exchange_weak(owner, owner + 1, std::memory_order_acquire)) return Turn(word);
  return std::nullopt;
}

ControlOwnership::~ControlOwnership() {
  if (const auto turn = enter()) layout().control_plane.pid = 0;
}

DataPlaneOwnership::DataPlaneOwnership(Segment& segment) : segment_(segment) {
  for (int i = 0; i < kTries; ++i) {
    if (!take(PartFile::open(segment.name(), Part::Data, PartFile::Access::Write))) continue;
    static_cast<void>(SLUICE_INVARIANT(
        segment.file(Part::Data) != nullptr && segment.file(Part::Data)->writable(), segment_state));
    segment.name_counters();
    // The last beat of a killed predecessor may be recent, and this data plane does not serve yet.
    segment.layout().data_plane.pid = 0;
    return;
  }
  throw SetupError("Another data plane of segment '" + segment.name() + "' is starting. Stop it first.");
}

/// Takes the data plane's lock. A killed process keeps its locks until its memory has been freed, so this
/// function waits for that. Returns false if another data plane holds the lock: its heartbeat advances, or it
/// has stood still for longer than an exiting process would.
bool DataPlaneOwnership::lock_after_predecessor(const PartFile& file) {
  static_cast<void>(SLUICE_INVARIANT(file.part() == Part::Data && file.writable(), segment_state));
  const std::uint64_t beats = file.head().beats;
  const std::uint64_t since_ns = monotonic_ns();
  while (!file_lock::take(file.descriptor(), kDataPlaneLock)) {
    if (file.head().beats != beats || monotonic_ns() - since_ns > kHeartbeatTimeoutNs) return false;
    sleep_between_checks();
  }
  return true;
}

/// Returns false if the path no longer leads to this file.
bool DataPlaneOwnership::take(std::optional<PartFile> file) {
  if (!file) return take_new(std::nullopt);
  if (const std::string reason = file->why_untrusted(); !reason.empty())
    throw SetupError("The shared segment " + file->path() + " cannot be used: " + reason +
                     ". Remove it, or use another --segment.");
  if (!lock_after_predecessor(*file)) refuse(*file);
  if (!file->has_its_name()) return false;
  if (!file->defect().empty()) return take_new(std::move(file));
  segment_.map(std::move(*file));
  return true;
}

bool DataPlaneOwnership::take_new(std::optional<PartFile> replaced) {
  PartFile made = PartFile::make(segment_.name(), Part::Data);
  file_lock::take(made.descriptor(), kDataPlaneLock);
  segment_.map(std::move(made));
  segment_.begin(Part::Data);
  if (replaced) replaced->unlink();
  return segment_.file(Part::Data)->show();
}

void DataPlaneOwnership::refuse(const PartFile& file) const {
  const PartFile::Head head = file.head();
  segment_.refresh(Part::Data);
  const bool beats = alive(segment_.layout().data_plane, monotonic_ns());
  throw SetupError("Another data plane" + process(head.pid) + " serves segment '" + segment_.name() + "'" +
                   (beats ? "" : ", but its heartbeat has stopped") + ". Stop it first" +
                   (beats ? "" : " (with kill -KILL, if a signal has stopped it)") +
                   ", or use another --segment.");
}

DataPlaneOwnership::~DataPlaneOwnership() {
  const PartFile* const file = segment_.file(Part::Data);
  if (file == nullptr) return;
  static_cast<void>(SLUICE_INVARIANT(file->writable(), segment_state));
  file_lock::give_back(file->descriptor(), kDataPlaneLock);
}

}  // namespace sluice::segment
