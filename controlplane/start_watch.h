// SPDX-License-Identifier: Apache-2.0
//
// A data plane that starts asks for its configuration and waits (dataplane/process/start.h). Where nothing has changed that
// only a start brings into force, it gets what was published before. Otherwise the control plane has to begin anew with it,
// since its own parts have sizes and addresses from the same keys: it reads the files first, so that it does not end on one
// that is just being written. The control plane's loop.
#pragma once

#include <cstdint>

#include "dataplane/segment/segment.h"

namespace sluice::controlplane {

class StartWatch {
 public:
  /// The layout outlives it.
  explicit StartWatch(segment::Layout& layout) : layout_(layout) {}

  /// Whether keys have changed that only a start brings into force.
  void set_changed(bool changed) { changed_ = changed; }

  enum class Step : std::uint8_t {
    Nothing,
    Answer,    ///< publish for the data plane, then answered()
    Read,      ///< read the files, then has_read()
    BeginAnew  ///< a new process of the control plane answers
  };
  Step look(std::uint64_t now_ns);
  void has_read(bool usable);
  /// What is published is for the data plane that has asked last.
  void answered();
  std::uint64_t starts_answered() const { return starts_answered_; }

 private:
  /// Reading takes longer only from a disk or server that does not answer: the data plane then starts with what there is.
  static constexpr std::uint64_t kReadNs = 5'000'000'000;
  enum class Files : std::uint8_t { NotRead, Reading, Usable, Unusable };

  segment::Layout& layout_;
  std::uint64_t asked_ = 0;  ///< as seen last
  std::uint64_t starts_answered_ = 0;
  bool changed_ = false;
  Files files_ = Files::NotRead;
  std::uint64_t reading_since_ns_ = 0;
};

/// Whether a data plane runs that has its configuration.
bool data_plane_has_started(const segment::Segment& segment, const segment::Layout& layout);

}  // namespace sluice::controlplane
