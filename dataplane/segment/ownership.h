// SPDX-License-Identifier: Apache-2.0
//
// Who may write the segment: one control plane and one data plane at a time, of whatever PID namespace.
//
// Each plane holds a lock on a byte of its own part's file for its life (base/file_lock.h). The data plane's is always
// the same byte. Control planes are numbered by epochs, and the one of epoch e holds the byte kControlPlaneLocks + e,
// so that a successor can have its own while a predecessor that is stopped (SIGSTOP, a frozen container) still holds
// its own. Heartbeat::owner says whose turn it is:
//
//     epoch << 32 | threads of that control plane that are writing just now
//
// A control plane writes within a Turn only, which it gets while the word has its epoch. A successor moves the word to
// its epoch when the predecessor's lock is free, or when it has not beaten for kHeartbeatTimeoutNs and has no turn. So
// a control plane that is continued afterwards gets no turn any more, and there are never two writers.
//
// Main thread at setup; enter() is for any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "dataplane/base/owned.h"
#include "dataplane/segment/former_segment.h"
#include "dataplane/segment/segment.h"

namespace sluice::segment {

// The same in every release.
inline constexpr std::uint64_t kDataPlaneLock = 0;
inline constexpr std::uint64_t kControlPlaneLocks = 1;
constexpr std::uint64_t control_plane_lock(std::uint32_t epoch) noexcept {
  return kControlPlaneLocks + epoch;
}

class ControlOwnership {
 public:
  /// The right to write. The ownership outlives it.
  class Turn {
   public:
    explicit Turn(std::atomic<std::uint64_t>& owner) : owner_(&owner) {}
    Turn(Turn&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (owner_ != nullptr) owner_->fetch_sub(1, std::memory_order_release);
    }

   private:
    std::atomic<std::uint64_t>* owner_;
  };

  /// Finds the control plane's part of that segment, or makes one that nobody sees yet, and reserves the next epoch. Changes
  /// nothing that others look at. Throws SetupError: another control plane lives, which takes
  /// kHeartbeatTimeoutNs to find out when it is stopped; the file is another user's; a plane of another release
  /// works with it.
  explicit ControlOwnership(const std::string& name);
  /// The heart of an owner stops.
  ~ControlOwnership();
  ControlOwnership(const ControlOwnership&) = delete;
  ControlOwnership& operator=(const ControlOwnership&) = delete;

  /// The last step of a start: shows a new segment, and moves the epoch. Throws SetupError when the predecessor
  /// has come back to life meanwhile.
  void take();
  /// Nothing before take(), and for good after another control plane has taken over.
  std::optional<Turn> enter() noexcept;

  Layout& layout() noexcept { return segment_->layout(); }
  Segment& segment() noexcept { return *segment_; }
  /// Whether it has made its part anew, rather than found one.
  bool made_new() const noexcept { return new_; }
  const std::string& name() const noexcept { return name_; }
  std::uint32_t epoch() const noexcept { return epoch_; }
  /// A predecessor that is stopped, not gone: it still holds its lock, its sockets and its ports. Zero: none.
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
  std::optional<PartFile> replaced_;  ///< of another layout, or no segment at all: removed by take()
  std::optional<FormerSegment> former_;
  std::optional<PartFile> away_;  ///< the data plane's, whose lock we have
  Owned<Segment> segment_;
  bool new_ = false;
  std::uint32_t epoch_ = 0;
  std::uint32_t stopped_ = 0;
  std::uint64_t stopped_beats_ = 0;
};

/// Held by the data plane while it lives, with its part of the segment, which it maps; it is alive for others from its
/// start_heartbeat() on. The segment outlives it.
class DataPlaneOwnership {
 public:
  /// Takes the part that is there, or makes one. Throws SetupError when another data plane has it.
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
