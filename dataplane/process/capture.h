// SPDX-License-Identifier: Apache-2.0
//
// Packet captures, one at a time: CaptureService receives requests (segment/channels.h) in a separate thread,
// and PacketCapture moves frames from the lanes' rings to the pipe that came with a request. Neither a client
// nor its output can block another thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/channels.h"
#include "dataplane/segment/segment.h"
#include "pmd/softroce/capture.h"
#include "pmd/softroce/softroce.h"

namespace sluice::process {

/// Write end of the pipe that a capture is written to. Writes do not block, even if the reader stops reading.
/// Used by one thread, which has SIGPIPE blocked or ignored.
class CaptureOutput {
 public:
  /// Limit on pending bytes, in addition to the bytes in the pipe. At the limit, the caller stops adding.
  static constexpr std::size_t kMaxPendingBytes = 1u << 20;

  /// Takes the pipe. Throws SetupError unless it is the write end of a pipe or FIFO, because a write to
  /// anything else may block on a disk.
  explicit CaptureOutput(FileDescriptor pipe);

  /// Returns the buffer to append to.
  std::vector<std::byte>& pending() { return pending_; }
  bool full() const { return pending_.size() - written_ >= kMaxPendingBytes; }
  bool drained() const { return pending_.size() == written_; }
  /// Returns the number of bytes written to the pipe.
  std::size_t total() const { return total_; }

  enum class Outcome { Progress, Blocked, Gone };
  /// Writes as much as the pipe accepts without blocking. Gone: the pipe has no reader any longer.
  Outcome flush();
  /// Returns the descriptor for poll(), which becomes writable, or reports an error when the reader closes
  /// the pipe.
  int descriptor() const { return pipe_.get(); }

 private:
  FileDescriptor pipe_;
  std::vector<std::byte> pending_;
  std::size_t written_ = 0;  ///< bytes of pending_ that are written
  std::size_t total_ = 0;
};

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

/// One capture, within limits on packets, bytes and time. The reader of the pipe is the lease of the capture:
/// the capture ends when the pipe has no reader. Used by one thread, that of CaptureService or of a test.
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

/// Thread that serves requests for captures. The main thread constructs and destroys the service. It outlives
/// the last iteration of the reactors.
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
