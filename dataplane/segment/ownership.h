// SPDX-License-Identifier: Apache-2.0
//
// Only one control plane and one data plane own the segment and write it at a time, whatever their PID
// namespaces.
//
// Each plane holds a lock on a byte of its own part's file while it lives (base/file_descriptor.h). The data
// plane's lock is always on one fixed byte. Control planes are numbered by epochs, and the control plane of
// epoch e locks the byte kControlPlaneLocks + e, so that a successor can hold its lock while a stopped
// predecessor (SIGSTOP, a frozen container) still holds its own. Heartbeat::owner contains the current owner:
//
//     epoch << 32 | number of threads of that control plane that are writing
//
// A control plane writes only while it holds a Turn, its write lease, which it can take while the word has
// its epoch. A successor moves the word to its own epoch when the predecessor's lock is free, or when the
// predecessor has not beaten for kHeartbeatTimeoutNs and holds no Turn. A control plane that resumes later
// gets no Turn, so there are never two writers.
//
// For the main thread at setup; any thread may call enter().
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/segment/part_file.h"
#include "dataplane/segment/segment.h"

namespace sluice::segment {

// Lock bytes; identical in every release.
inline constexpr std::uint64_t kDataPlaneLock = 0;
inline constexpr std::uint64_t kControlPlaneLocks = 1;
constexpr std::uint64_t control_plane_lock(std::uint32_t epoch) noexcept {
  return kControlPlaneLocks + epoch;
}

class ControlOwnership {
 public:
  /// Write lease. The ownership outlives it.
  class Turn {
   public:
    explicit Turn(std::atomic<std::uint64_t>& owner) : owner_(&owner) {}
    Turn(Turn&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (owner_ == nullptr) return;
      static_cast<void>(SLUICE_INVARIANT(
          static_cast<std::uint32_t>(owner_->load(std::memory_order_relaxed)) != 0, segment_state));
      owner_->fetch_sub(1, std::memory_order_release);  // pairs with take_shown(): the writes of this lease
    }

   private:
    std::atomic<std::uint64_t>* owner_;
  };

  /// Opens the control plane's part of the segment, or creates one that is not visible yet, and reserves the
  /// next epoch. Changes nothing that other processes see. Throws SetupError if another control plane runs
  /// (detecting a stopped one takes kHeartbeatTimeoutNs), if the file belongs to another user, or if a plane
  /// of another release uses it.
  explicit ControlOwnership(const std::string& name);
  /// Clears the pid of the heartbeat if this control plane still owns the segment.
  ~ControlOwnership();
  ControlOwnership(const ControlOwnership&) = delete;
  ControlOwnership& operator=(const ControlOwnership&) = delete;

  /// Last step of a start: publishes a new segment, and moves the epoch. Throws SetupError if the predecessor
  /// has resumed.
  void take();
  /// Takes a write lease. Returns nullopt before take(), and always after another control plane has taken
  /// over.
  std::optional<Turn> enter() noexcept;

  Layout& layout() noexcept { return segment_->layout(); }
  Segment& segment() noexcept { return *segment_; }
  /// Returns whether the control plane's part was newly created rather than found.
  bool made_new() const noexcept { return new_; }
  const std::string& name() const noexcept { return name_; }
  std::uint32_t epoch() const noexcept { return epoch_; }
  /// Returns the epoch of a predecessor that is stopped rather than ended: it still holds its lock, its
  /// sockets and its ports. Zero: none.
  std::uint32_t stopped_predecessor() const noexcept { return stopped_; }

 private:
  bool reserve(PartFile& file);
  void check_other_layout(const PartFile& file) const;
  void keep_data_plane_away();
  void make();
  void wait_for_predecessor();
  void take_shown();
  void take_new();

  const std::string name_;
  std::optional<PartFile> replaced_;  ///< file of another layout, or not a segment; removed by take()
  std::optional<PartFile> away_;      ///< the data plane's file, whose lock we hold
  Owned<Segment> segment_;
  bool new_ = false;
  std::uint32_t epoch_ = 0;
  std::uint32_t stopped_ = 0;
  std::uint64_t stopped_beats_ = 0;
};

/// Ownership of the data plane's part of the segment, which it maps. The data plane holds it while it lives,
/// and is alive for other processes from start_heartbeat() on. The segment outlives it.
class DataPlaneOwnership {
 public:
  /// Takes the existing part or creates one. Throws SetupError if another data plane owns it.
  explicit DataPlaneOwnership(Segment& segment);
  ~DataPlaneOwnership();
  DataPlaneOwnership(const DataPlaneOwnership&) = delete;
  DataPlaneOwnership& operator=(const DataPlaneOwnership&) = delete;

 private:
  static bool lock_after_predecessor(const PartFile& file);
  bool take(std::optional<PartFile> file);
  bool take_new(std::optional<PartFile> replaced);
  [[noreturn]] void refuse(const PartFile& file) const;

  Segment& segment_;
};

}  // namespace sluice::segment
