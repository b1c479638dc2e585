// SPDX-License-Identifier: Apache-2.0
//
// Decides how to answer a data plane that starts, which requests its configuration and waits
// (dataplane/process/start.h). If no key has changed that only a start applies, it gets the published
// configuration. Otherwise the control plane has to be restarted as well, because its own parts have sizes
// and addresses from the same keys. It reads the files before that, so that a file that is just being written
// does not end it. Runs on the control plane's loop.
#pragma once

#include <cstdint>

#include "dataplane/segment/segment.h"

namespace sluice::controlplane {

class StartMonitor {
 public:
  /// `layout` outlives this object.
  explicit StartMonitor(segment::Layout& layout) : layout_(layout) {}

  /// Sets whether keys have changed that only a start applies.
  void set_changed(bool changed) { changed_ = changed; }

  enum class Step : std::uint8_t {
    Nothing,
    Answer,    ///< publish the configuration, then call answered()
    Read,      ///< read the files, then call has_read()
    BeginAnew  ///< a new process of the control plane answers
  };
  Step poll(std::uint64_t now_ns);
  void has_read(bool usable);
  /// Records that the published configuration is for the data plane with the most recent request.
  void answered();
  std::uint64_t starts_answered() const { return starts_answered_; }

 private:
  /// Timeout for reading the files. It only expires if a disk or server does not answer. The data plane then
  /// starts with the published configuration.
  static constexpr std::uint64_t kReadNs = 5'000'000'000;
  enum class Files : std::uint8_t { NotRead, Reading, Usable, Unusable };

  segment::Layout& layout_;
  std::uint64_t asked_ = 0;  ///< last value of start_asked
  std::uint64_t starts_answered_ = 0;
  bool changed_ = false;
  Files files_ = Files::NotRead;
  std::uint64_t reading_since_ns_ = 0;
};

/// Returns true if a data plane runs that has received its configuration.
bool data_plane_has_started(const segment::Segment& segment, const segment::Layout& layout);

}  // namespace sluice::controlplane
