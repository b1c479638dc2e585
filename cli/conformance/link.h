// SPDX-License-Identifier: Apache-2.0
//
// The way to the server under test: one connection at a time, from a raw end. The thread that polls the device.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "cli/conformance/function_ref.h"
#include "cli/conformance/raw_endpoint.h"
#include "dataplane/rpcrdma/link/private_data.h"

namespace sluice::conformance {

/// Of the monotonic clock.
std::uint64_t now_ns();

/// No connection can be made. what() is a sentence that says what to do.
class LinkError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Link {
 public:
  /// Setup. Device and manager outlive the link.
  Link(rdma::Device& device, rdma::ConnectionManager& manager, std::uint16_t port);
  virtual ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Ends the connection that there is, and makes a new one; a server that refuses is asked again for some seconds.
  /// Without `own`, no private data is sent. Throws LinkError.
  void connect(const std::optional<rpcrdma::PrivateData>& own);
  /// Returns when both sides have let go, or after a while.
  void disconnect();

  /// Polls everything once.
  void turn();
  /// Whether the connection has ended in any way.
  bool lost() const { return lost_ || end_.failed; }
  const char* why_lost() const;
  RawEndpoint& end() { return end_; }
  /// RFC 8797 private data of the server's answer.
  const std::optional<rpcrdma::PrivateData>& server_data() const { return server_data_; }

  /// Turns until `done`, or until so much time has passed. Returns whether it is done.
  bool wait(std::uint64_t limit_ns, FunctionRef<bool()> done);

 protected:
  /// A server in the same thread takes its turn.
  virtual void other_side() {}
  /// The messages of this connection so far; those from `first` on are new.
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
