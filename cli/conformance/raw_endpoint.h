// SPDX-License-Identifier: Apache-2.0
//
// One end of a connection without a transport: posts Receives, sends bytes, exposes memory, and checks nothing. The
// thread that polls the device. Its memory is the device's; a queue pair that it made is the caller's.
#pragma once

#include <span>
#include <stdexcept>
#include <vector>

#include "cli/conformance/messages.h"
#include "pmd/device.h"

namespace sluice::conformance {

/// The own end could not do what it was told: a limit of the device or of this program, no fault of the peer.
class EndpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Received {
  Bytes bytes;
  bool remote_invalidate = false;
};

class RawEndpoint {
 public:
  /// Setup: allocates its memory.
  RawEndpoint(rdma::Device& device, std::uint32_t receive_bytes, std::uint32_t receives);
  virtual ~RawEndpoint() = default;
  RawEndpoint(const RawEndpoint&) = delete;
  RawEndpoint& operator=(const RawEndpoint&) = delete;

  /// With its Receives posted, or without.
  Owned<rdma::QueuePair> make_queue_pair(bool with_receives = true);
  virtual void adopt(rdma::QueuePair& qp);
  void post_receives();

  /// With an rkey of the peer's: Send With Invalidate.
  void send(std::span<const std::byte> bytes, rdma::Rkey invalidate = {});
  /// Exposes fresh memory of this size; `access` kRemoteRead or kRemoteWrite.
  Exposed expose(std::size_t bytes, rdma::AccessFlags access);
  void write_remote(const rpcrdma::Segment& segment, std::span<const std::byte> bytes);
  /// Where the bytes will be once the RDMA Read is complete.
  std::span<const std::byte> read_remote(const rpcrdma::Segment& segment, std::size_t bytes);

  /// Polls the device, whose completions are all of this end.
  void poll();
  void take(const rdma::WorkCompletion& wc);
  /// What came before counts no more; for a new connection.
  void forget();

  std::vector<Received> inbox;
  std::vector<rdma::WorkCompletion> send_completions;
  bool failed = false;  ///< a work completion with an error was seen
  rdma::WcStatus first_error = rdma::WcStatus::Success;
  Owned<rdma::QueuePair> owned_qp;

 protected:
  /// Each Send of either side.
  virtual void on_message(bool sent, std::span<const std::byte> bytes) {
    static_cast<void>(sent);
    static_cast<void>(bytes);
  }

 private:
  rdma::MemoryRegion allocate(std::size_t bytes);
  void post(const rdma::SendWr& wr);

  rdma::Device& device_;
  rdma::QueuePair* qp_ = nullptr;
  std::uint32_t receive_bytes_;
  std::uint32_t receives_;
  rdma::MemoryRegion receive_region_;
  rdma::MemoryRegion arena_;
  std::size_t arena_used_ = 0;
  std::uint64_t next_send_ = 1u << 20;
};

}  // namespace sluice::conformance
