// SPDX-License-Identifier: Apache-2.0
//
// One packet capture: from the lanes' rings to a pipe, within limits on packets, bytes and time. The reader
// of the pipe is the lease of the capture: the capture ends when the pipe has no reader. Used by one thread,
// that of CaptureService or of a test.
#pragma once

#include <cstdint>
#include <string_view>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/process/capture_output.h"
#include "dataplane/segment/capture_channel.h"
#include "dataplane/segment/segment.h"
#include "pmd/softroce/capture.h"

namespace sluice::process {

/// Converts time-stamp counter values to the wall clock.
class TscToWall {
 public:
  explicit TscToWall(std::uint64_t tsc_hz) : ns_per_cycle_(1e9 / static_cast<double>(tsc_hz)) {}
  /// Samples both clocks.
  void set();
  /// Returns nanoseconds since 1970.
  std::uint64_t wall_ns(std::uint64_t tsc) const;

 private:
  const double ns_per_cycle_;
  std::uint64_t tsc_ = 0;
  std::uint64_t wall_ns_ = 0;
};

class PacketCapture {
 public:
  /// Timeout for the reader of the rest of a capture that has ended.
  static constexpr std::uint64_t kFlushPatienceNs = 2'000'000'000;
  /// Maximum of frames that one poll() takes from the rings.
  static constexpr std::uint32_t kFramesPerTurn = 4096;

  /// Starts `frames`, which outlives this object; the destructor stops it. `interface` is the name of the
  /// port in the file. Throws SetupError.
  PacketCapture(rdma::softroce::Capture& frames, std::string_view interface,
                const segment::CaptureRequest& request, FileDescriptor pipe, std::uint64_t tsc_hz,
                std::uint64_t now_ns);
  ~PacketCapture();
  PacketCapture(const PacketCapture&) = delete;
  PacketCapture& operator=(const PacketCapture&) = delete;

  /// Takes frames that have arrived and writes as much as the pipe accepts. Returns false when the capture is
  /// over; `now_ns` is monotonic.
  bool poll(std::uint64_t now_ns);
  /// Stops taking packets; poll() writes the rest. `why` is the reason in the status.
  void end(std::string_view why, std::uint64_t now_ns);
  /// Aborts the capture and discards the rest.
  void fail(std::string_view sentence);

  const segment::CaptureStatus& status() const { return status_; }
  const CaptureOutput& output() const { return output_; }

 private:
  std::string_view take_frames();
  void finish();

  rdma::softroce::Capture& frames_;
  const segment::CaptureRequest request_;
  CaptureOutput output_;
  TscToWall clock_;
  segment::CaptureStatus status_;
  std::uint64_t started_ns_;
  std::uint64_t progress_ns_ = 0;    ///< last time that the pipe accepted data
  std::uint64_t planned_bytes_ = 0;  ///< bytes written, pending, and of the last block
  std::uint64_t left_ = 0;           ///< frames that did not fit at the end
  bool ending_ = false;
  bool over_ = false;
};

}  // namespace sluice::process
