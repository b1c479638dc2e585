// SPDX-License-Identifier: Apache-2.0
//
// Two of our engines with several connections between them, each with a requester at both ends, so that every
// end is both requester and responder. Another reactor, which runs on the same thread here, may serve the
// server's calls. There is one thread and a simulated clock. Any sequence of actions is allowed: calls of all
// shapes, ends of connections at any moment, and the passing of time. finish() then reports whether every
// resource has been returned.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/lab.h"

namespace sluice::conformance {

enum class Shape : std::uint8_t { Null, List, Name, Source, Sink, Later, Pair };
inline constexpr std::uint32_t kShapes = 7;

class Mesh {
 public:
  static constexpr std::uint32_t kLegs = 3;
  static constexpr std::uint32_t kRequests = 16;
  enum Side : std::uint32_t { kClient, kServer };

  explicit Mesh(bool handed_over);
  ~Mesh();

  /// Connects a leg that is not connected, as a client that speaks up to `version`.
  void connect(std::uint32_t leg, std::uint32_t version);
  /// Submits a call. Returns false if there was no room for it.
  bool submit(std::uint32_t leg, Side side, Shape shape, std::uint32_t bytes);
  std::uint32_t under_way(std::uint32_t leg, Side side) const;
  /// Cancels one of the outstanding calls of this end.
  void cancel(std::uint32_t leg, Side side, std::uint32_t which);
  /// Closes the connection gracefully.
  void close(std::uint32_t leg, Side side);
  /// Drops the connection as if the process at this end, or the network, had failed.
  void lose(std::uint32_t leg, Side side);
  void set_credits(std::uint32_t leg, std::uint32_t credits);
  /// Completes the calls of shape Later that this side holds.
  void complete_later(Side side) { sides_[side].service->complete_later(); }
  void turn(Side side);
  void turns(std::uint32_t count);
  void pass(std::uint64_t ns) { now_ns_ += ns; }

  /// Ends everything. Returns a description of what was not returned; empty if everything was.
  std::string finish();

 private:
  struct Ticket {
    rpc::Xid xid{};
    std::uint32_t ended = 0;
  };
  struct End {
    std::unique_ptr<rpcrdma::Requester> requester;
    rpcrdma::Connection* connection = nullptr;
    std::optional<rdma::CmId> id;
    std::vector<std::unique_ptr<Ticket>> tickets;
  };
  struct Half {
    std::unique_ptr<rdma::Device> device;
    std::unique_ptr<rpcrdma::Engine> engine;
    std::unique_ptr<TestService> service;
    rdma::MemoryRegion memory;
    std::array<End, kLegs> ends;
  };

  static void completed(void* context, const rpcrdma::Reply& reply) noexcept;
  void manage(Side side);
  void on_event(Side side, const rdma::CmEvent& event);
  void accept(const rdma::CmEvent& event);
  void take_closed(Side side);
  /// Compares the credits of both ends. Requires idle connections.
  std::string complaint_of_credits() const;
  rpcrdma::ConnectionConfig config_of(Side side, std::uint32_t version) const;
  std::string complaint(Side side) const;

  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  std::array<Half, 2> sides_;
  std::unique_ptr<service::CrossReactorCall> rings_;
  std::unique_ptr<service::RemoteService> remote_service_;
  std::uint64_t now_ns_ = 1;
};

}  // namespace sluice::conformance
