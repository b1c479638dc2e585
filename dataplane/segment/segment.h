// SPDX-License-Identifier: Apache-2.0
//
// The shared memory segment between the planes: two files, one of each plane (dataplane/segment/parts.h), mapped side
// by side.
//
// Each plane makes its own and writes no other; both outlive both processes, and either plane may start first. A part
// whose file is not there yet reads as zeros, and appears in its place later; one that its plane cuts short reads as
// zeros again. Segment itself is for the main threads; the members of Layout may be read by any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "dataplane/base/owned.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/cut_guard.h"
#include "dataplane/segment/layout.h"
#include "dataplane/segment/part_file.h"

namespace sluice::segment {

class Segment {
 public:
  /// Without any file yet.
  explicit Segment(std::string name);
  /// Both parts for writing, made where they are not there: for tests and tools, which play both planes.
  static Owned<Segment> open_or_create(const std::string& name);
  /// Both parts for reading; the data plane's may not be there yet. Throws SetupError if there is no usable one of
  /// the control plane.
  static Owned<Segment> attach(const std::string& name);
  /// In memory of this process alone, which writes all of it. Untouched pages take no memory.
  static Owned<Segment> in_memory();
  /// The files of that name.
  static void remove(const std::string& name) noexcept;
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// Maps a file, without a look at it, in place of what was there. Throws SetupError.
  void map(PartFile file);

  enum class Found {
    Nothing,   ///< there is no file
    Same,      ///< as before
    Appeared,  ///< it was not there before
    Replaced,  ///< another one than before: what was read there no longer holds
    Unusable,  ///< see problem(); what was there before stays, as zeros if it was cut
  };
  /// Looks for the file of the other plane and maps it for reading.
  Found look_for(Part part);
  /// The sentence for the last Unusable.
  const std::string& problem() const noexcept { return problem_; }

  Layout& layout() noexcept { return layout_; }
  const std::string& name() const noexcept { return name_; }
  /// Null: it is not mapped.
  PartFile* file(Part part) noexcept;
  /// Whether the other plane has cut the file that is mapped for reading short: until another comes in its place, the part
  /// reads as zeros.
  bool was_cut(Part part) const noexcept { return guard(part).was_cut(); }
  /// Whether a process holds the data plane's lock, in whatever PID namespace it is.
  bool data_plane_runs() const noexcept;
  /// Likewise for the lock of the control plane of an epoch, which may be stopped and have a successor.
  bool control_plane_runs(std::uint32_t epoch) const noexcept;

  /// For a plane that has made a new part while the other's is older: goes on in rings and counts where the other is.
  void begin(Part part) noexcept;

  /// Of the data plane, when it starts: its names; counters that another release has left under other ones begin
  /// again at zero.
  void name_counters();
  /// Of a reader: finds the counters where the data plane has them.
  void find_counters();

  ControlPart& control_part() noexcept;
  DataPart& data_part() noexcept;

 private:
  Segment(std::string name, int protection);
  std::optional<PartFile>& slot(Part part) noexcept { return part == Part::Control ? control_ : data_; }
  const CutGuard& guard(Part part) const noexcept {
    return part == Part::Control ? control_guard_ : data_guard_;
  }
  CutGuard& guard(Part part) noexcept { return part == Part::Control ? control_guard_ : data_guard_; }

  const std::string name_;
  std::byte* const memory_;
  Layout layout_;
  std::optional<PartFile> control_;
  std::optional<PartFile> data_;
  CutGuard control_guard_;
  CutGuard data_guard_;
  std::string problem_;
  std::uint32_t counter_names_ = 0;  ///< sequence of those that were found
};

}  // namespace sluice::segment
