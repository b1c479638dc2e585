// SPDX-License-Identifier: Apache-2.0
//
// One packet capture: from the lanes' rings to a pipe, within limits of packets, bytes and time. Its reader is its
// lease: when nobody reads the pipe any more, the capture is over. One thread, that of CaptureService, or a test's.
#pragma once

#include <cstdint>
#include <string_view>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/process/capture_output.h"
#include "dataplane/segment/capture_channel.h"
#include "dataplane/segment/segment.h"
#include "pmd/softroce/capture.h"

namespace sluice::process {

/// Translates the time-stamp counter to the wall clock, as both are at present.
class TscToWall {
 public:
  explicit TscToWall(std::uint64_t tsc_hz) : ns_per_cycle_(1e9 / static_cast<double>(tsc_hz)) {}
  /// Looks at both clocks.
  void set();
  /// Nanoseconds since 1970.
  std::uint64_t wall_ns(std::uint64_t tsc) const;

 private:
  const double ns_per_cycle_;
  std::uint64_t tsc_ = 0;
  std::uint64_t wall_ns_ = 0;
};

class PacketCapture {
 public:
  /// How long the rest of a capture that has ended may wait for its reader.
  static constexpr std::uint64_t kFlushPatienceNs = 2'000'000'000;
  /// Frames that one turn takes from the rings at most.
  static constexpr std::uint32_t kFramesPerTurn = 4096;

  /// Starts `frames`, which outlives it; its destructor stops that. `interface` names the port in the file. Throws
  /// SetupError.
  PacketCapture(rdma::softroce::Capture& frames, std::string_view interface,
                const segment::CaptureRequest& request, FileDescriptor pipe, std::uint64_t tsc_hz,
                std::uint64_t now_ns);
  ~PacketCapture();
  PacketCapture(const PacketCapture&) = delete;
  PacketCapture& operator=(const PacketCapture&) = delete;

  /// Takes what has arrived and writes what the pipe takes. False once all is over; `now_ns` is monotonic.
  bool turn(std::uint64_t now_ns);
  /// No more packets; turn() writes what is left. `why` is for the status.
  void end(std::string_view why, std::uint64_t now_ns);
  /// At once, whatever is left.
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
  std::uint64_t progress_ns_ = 0;    ///< after end(): when the pipe took something
  std::uint64_t planned_bytes_ = 0;  ///< written, pending, and the last block
  std::uint64_t left_ = 0;           ///< frames that had no room at the end
  bool ending_ = false;
  bool over_ = false;
};

}  // namespace sluice::process
