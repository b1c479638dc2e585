// SPDX-License-Identifier: Apache-2.0
//
// One end of a connection without a transport: posts Receives, sends bytes, exposes memory, and checks
// nothing. Runs on the thread that polls the device. The device owns its memory; the caller owns each queue
// pair that it creates.
#pragma once

#include <span>
#include <stdexcept>
#include <vector>

#include "cli/conformance/messages.h"
#include "pmd/device.h"

namespace sluice::conformance {

/// Failure of our own end, by a limit of the device or of this program. The peer is not at fault.
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
  /// Creates an endpoint and allocates its memory. Used at setup.
  RawEndpoint(rdma::Device& device, std::uint32_t receive_bytes, std::uint32_t receives);
  virtual ~RawEndpoint() = default;
  RawEndpoint(const RawEndpoint&) = delete;
  RawEndpoint& operator=(const RawEndpoint&) = delete;

  /// Creates a queue pair, with or without posted Receives.
  Owned<rdma::QueuePair> make_queue_pair(bool with_receives = true);
  virtual void adopt(rdma::QueuePair& qp);
  void post_receives();

  /// Sends a message, by Send With Invalidate if `invalidate` is an rkey of the peer.
  void send(std::span<const std::byte> bytes, rdma::Rkey invalidate = {});
  /// Exposes fresh memory of this size. `access` is kRemoteRead or kRemoteWrite.
  Exposed expose(std::size_t bytes, rdma::AccessFlags access);
  void write_remote(const rpcrdma::Segment& segment, std::span<const std::byte> bytes);
  /// Starts an RDMA Read. Returns the memory that holds the bytes once the RDMA Read is complete.
  std::span<const std::byte> read_remote(const rpcrdma::Segment& segment, std::size_t bytes);

  /// Polls the device, whose completions all belong to this end.
  void poll();
  void take(const rdma::WorkCompletion& wc);
  /// Discards the state of an earlier connection, for a new one.
  void forget();

  std::vector<Received> inbox;
  std::vector<rdma::WorkCompletion> send_completions;
  bool failed = false;  ///< a work completion with an error was seen
  rdma::WcStatus first_error = rdma::WcStatus::Success;
  Owned<rdma::QueuePair> owned_qp;

 protected:
  /// Called for each Send of either side.
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
