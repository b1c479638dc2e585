// SPDX-License-Identifier: Apache-2.0
//
// Shared memory segment between the planes: two files, one per plane (dataplane/segment/layout.h), mapped
// next to each other.
//
// Each plane creates its own file and writes no other; both files outlive both processes, and either plane
// may start first. A part whose file does not exist yet reads as zeros until the file is mapped over it; a
// part that its plane truncates reads as zeros again. Segment is for the main threads; any thread may read
// the members of Layout.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "dataplane/base/owned.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/layout.h"
#include "dataplane/segment/part_file.h"

namespace sluice::segment {

/// Truncation guard for a mapped file. The owner of the file may truncate it at any moment, or remove pages
/// from it while the file system has no memory for new ones; a read of such a page raises SIGBUS. From then
/// on, all guarded memory reads as zeros, like a part of the segment in which nothing has happened yet. The
/// reader continues and detects the truncation later with was_truncated().
///
/// A SIGBUS for any other reason goes to the previous handler. All functions are for setup, except
/// was_truncated().
class TruncationGuard {
 public:
  /// Guards memory of whole pages that is mapped and remains mapped while it is guarded.
  TruncationGuard(std::byte* memory, std::size_t bytes) noexcept : memory_(memory), bytes_(bytes) {}
  ~TruncationGuard() { release(); }
  TruncationGuard(const TruncationGuard&) = delete;
  TruncationGuard& operator=(const TruncationGuard&) = delete;

  /// Guards the current mapping. Throws SetupError.
  void guard();
  void release() noexcept;
  /// Returns whether the memory has been replaced by zeros since guard(). Any thread.
  bool was_truncated() const noexcept;

 private:
  std::byte* const memory_;
  const std::size_t bytes_;
  int place_ = -1;  ///< index in the handler's table; negative: not guarded
};

class Segment {
 public:
  /// Creates a segment without any file mapped.
  explicit Segment(std::string name);
  /// Maps both parts for writing and creates missing ones: for tests and tools that act as both planes.
  static Owned<Segment> open_or_create(const std::string& name);
  /// Maps both parts for reading; the data plane's part may be missing. Throws SetupError if there is no
  /// usable part of the control plane.
  static Owned<Segment> attach(const std::string& name);
  /// Creates a segment in private memory that is writable as a whole. Untouched pages take no memory.
  static Owned<Segment> in_memory();
  /// Removes the files of that segment.
  static void remove(const std::string& name) noexcept;
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// Maps a file in place of the previous mapping, without validating it. Throws SetupError.
  void map(PartFile file);

  enum class Found {
    Nothing,   ///< no file exists
    Same,      ///< unchanged since the last call
    Appeared,  ///< the part had no file before
    Replaced,  ///< another file than before: data read from the old one is no longer valid
    Unusable,  ///< see problem(); the previous mapping stays, as zeros if it was truncated
  };
  /// Maps the present file of the other plane for reading, if it is not mapped yet.
  Found refresh(Part part);
  /// Returns the error message of the last Unusable.
  const std::string& problem() const noexcept { return problem_; }

  Layout& layout() noexcept { return layout_; }
  const std::string& name() const noexcept { return name_; }
  /// Returns the mapped file of a part; null if none is mapped.
  PartFile* file(Part part) noexcept;
  /// Returns whether the other plane has truncated the file that is mapped for reading. The part then reads
  /// as zeros until another file replaces it.
  bool was_truncated(Part part) const noexcept { return guard(part).was_truncated(); }
  /// Returns whether a process in any PID namespace holds the data plane's lock.
  bool data_plane_runs() const noexcept;
  /// Returns whether a process holds the lock of the control plane of an epoch, which may be stopped and have
  /// a successor.
  bool control_plane_runs(std::uint32_t epoch) const noexcept;

  /// Aligns a newly created part with the other plane's older part: rings and counts continue at the other
  /// part's positions.
  void begin(Part part) noexcept;

  /// Publishes the counter names when the data plane starts. If another release left different names, all
  /// counters restart at zero.
  void name_counters();
  /// Looks up the data plane's counters by name, for a reader.
  void find_counters();

  ControlPart& control_part() noexcept;
  DataPart& data_part() noexcept;

 private:
  Segment(std::string name, int protection);
  std::optional<PartFile>& slot(Part part) noexcept { return part == Part::Control ? control_ : data_; }
  const TruncationGuard& guard(Part part) const noexcept {
    return part == Part::Control ? control_guard_ : data_guard_;
  }
  TruncationGuard& guard(Part part) noexcept { return part == Part::Control ? control_guard_ : data_guard_; }

  const std::string name_;
  std::byte* const memory_;
  Layout layout_;
  std::optional<PartFile> control_;
  std::optional<PartFile> data_;
  TruncationGuard control_guard_;
  TruncationGuard data_guard_;
  std::string problem_;
  std::uint32_t counter_names_ = 0;  ///< sequence number of the names that were last read
};

}  // namespace sluice::segment
