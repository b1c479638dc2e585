// SPDX-License-Identifier: Apache-2.0
//
// Packet captures, one at a time, in a thread of their own: takes requests (segment/capture_channel.h), and writes to
// the pipe that came with one (packet_capture.h). Nothing that a client or its output does holds up another thread.
//
// Constructor and destructor: the main thread. It outlives the reactors' last turn.
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
  /// `port` is null when the driver is not softroce: every request then fails with a sentence. The layout outlives
  /// it. Throws SetupError if the socket at `path` cannot be made.
  CaptureService(segment::Layout& layout, const std::string& path, uid_t control_plane_user,
                 rdma::softroce::Port* port);
  /// Ends what runs, at once.
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
  FileDescriptor wake_;  ///< an eventfd, for stop_
  std::unique_ptr<rdma::softroce::Capture> frames_;
  std::unique_ptr<PacketCapture> capture_;  ///< null: none runs
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace sluice::process
