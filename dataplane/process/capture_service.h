// SPDX-License-Identifier: Apache-2.0
//
// Packet captures, one at a time, in a separate thread: receives requests (segment/capture_channel.h) and
// writes to the pipe that came with a request (packet_capture.h). Neither a client nor its output can block
// another thread.
//
// The main thread constructs and destroys the service. It outlives the last iteration of the reactors.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/process/packet_capture.h"
#include "dataplane/segment/capture_channel.h"
#include "dataplane/segment/segment.h"
#include "pmd/softroce/capture.h"
#include "pmd/softroce/softroce.h"

namespace sluice::process {

class CaptureService {
 public:
  /// Starts the thread. `port` is null if the driver is not softroce; every request then fails with a
  /// sentence. The layout outlives the service. Throws SetupError if the socket at `path` cannot be created.
  CaptureService(segment::Layout& layout, const std::string& path, uid_t control_plane_user,
                 rdma::softroce::Port* port);
  /// Aborts a running capture.
  ~CaptureService();
  CaptureService(const CaptureService&) = delete;
  CaptureService& operator=(const CaptureService&) = delete;

 private:
  void run();
  void wait();
  void take_requests();
  void start(segment::CaptureInbox::Received received);
  void publish(const segment::CaptureStatus& status);

  segment::Layout& layout_;
  rdma::softroce::Port* const port_;
  segment::CaptureInbox inbox_;
  FileDescriptor wake_;  ///< eventfd, signalled after stop_ is set
  std::unique_ptr<rdma::softroce::Capture> frames_;
  std::unique_ptr<PacketCapture> capture_;  ///< null: no capture is running
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::process
