// SPDX-License-Identifier: Apache-2.0
//
// Copies packets to a file when the control plane asks for it. The main thread, where files may be written.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "dataplane/segment/segment.h"
#include "pmd/softroce/capture.h"
#include "pmd/softroce/softroce.h"

namespace sluice::process {

class PacketCapture {
 public:
  /// `port` is null when the driver is not softroce: every request then fails with a sentence. A request that
  /// is older than this process is not for it. The layout outlives the capture.
  PacketCapture(segment::Layout& layout, std::shared_ptr<rdma::softroce::Port> port);
  ~PacketCapture();
  PacketCapture(const PacketCapture&) = delete;
  PacketCapture& operator=(const PacketCapture&) = delete;

  bool running() const { return capture_ != nullptr; }
  /// Starts or ends what a new request asks for, writes packets to the file, and publishes the status.
  void poll();

 private:
  void start(const segment::CaptureRequest& request);
  void stop();
  void write_packets();

  /// Far more than a turn: after this long no lane uses a capture that was taken from it.
  static constexpr std::chrono::milliseconds kLanesLetGo{50};

  segment::Layout& layout_;
  const std::shared_ptr<rdma::softroce::Port> port_;
  std::unique_ptr<rdma::softroce::Capture> capture_;
  std::uint64_t last_request_ = 0;
  std::uint64_t max_packets_ = 0;  ///< zero: no limit
  segment::CaptureStatus status_;
};

}  // namespace sluice::process
