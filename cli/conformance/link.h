// SPDX-License-Identifier: Apache-2.0
//
// The connection from a raw endpoint to the server under test, one at a time. Runs on the thread that polls
// the device.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "cli/conformance/function_ref.h"
#include "cli/conformance/raw_endpoint.h"
#include "dataplane/rpcrdma/link/config.h"

namespace sluice::conformance {

/// Number of polls of the device between two polls of connection management, during a connection.
inline constexpr std::uint32_t kTurnsPerManager = 64;
/// Time limit for the end of a connection, in nanoseconds.
inline constexpr std::uint64_t kFarewellNs = 2'000'000'000;

/// Returns the time of the monotonic clock.
std::uint64_t now_ns();

/// No connection can be established. what() is a sentence with the remedy.
class LinkError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Link {
 public:
  /// Creates a link. Used at setup. Device and manager must outlive the link.
  Link(rdma::Device& device, rdma::ConnectionManager& manager, std::uint16_t port);
  virtual ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Closes the current connection and opens a new one. Retries for some seconds if the server refuses it.
  /// Sends no private data if `own` is empty. Throws LinkError.
  void connect(const std::optional<rpcrdma::PrivateData>& own);
  /// Closes the connection. Returns when both sides have closed it, or after a timeout.
  void disconnect();

  /// Polls everything once.
  void turn();
  /// Reports whether the connection has ended in any way.
  bool lost() const { return lost_ || end_.failed; }
  const char* why_lost() const;
  RawEndpoint& end() { return end_; }
  /// Returns the RFC 8797 private data of the server's reply.
  const std::optional<rpcrdma::PrivateData>& server_data() const { return server_data_; }

  /// Polls until `done` returns true or the time limit has passed. Returns whether it is done.
  bool wait(std::uint64_t limit_ns, FunctionRef<bool()> done);

 protected:
  /// Runs a server in the same thread.
  virtual void other_side() {}
  /// Called with the messages of this connection so far. Messages from `first` on are new.
  virtual void arrived(std::vector<Received>& inbox, std::size_t first) {
    static_cast<void>(inbox);
    static_cast<void>(first);
  }

 private:
  bool try_connect(const std::optional<rpcrdma::PrivateData>& own);
  void poll_manager();

  rdma::ConnectionManager& manager_;
  const std::uint16_t port_;
  RawEndpoint end_;
  std::optional<rdma::CmId> id_;
  std::optional<rpcrdma::PrivateData> server_data_;
  std::size_t seen_ = 0;
  std::uint32_t turns_ = 0;
  bool established_ = false;
  bool rejected_ = false;
  bool lost_ = false;
};

}  // namespace sluice::conformance
