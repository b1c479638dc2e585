// SPDX-License-Identifier: Apache-2.0
//
// State of a reactor's connections beyond rpcrdma::Connection: their identifiers in connection management and
// in the control plane, and what has been published. Used on the reactor's thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/desired_state.h"
#include "pmd/connection_manager.h"

namespace sluice::reactor {

struct ConnectionRecord {
  rdma::CmId cm_id{};
  std::uint32_t incarnation = 0;  ///< see segment::ConnectionInfo
  bool established = false;
  bool draining = false;        ///< will be closed as soon as it has no calls
  bool outgoing = false;        ///< opened by this side, to a server
  bool request_unsent = false;  ///< outgoing: ConnectWanted has not been sent to the current control plane
  PeerAddress server{};         ///< outgoing: address of the server
  std::uint16_t server_port = 0;
  std::uint32_t peer_pid = 0;    ///< zero: not a process on this machine
  std::uint64_t since_ns = 0;    ///< wall clock time
  std::uint32_t queue_pair = 0;  ///< queue pair number
  std::array<std::byte, segment::kCmStateBytes> cm_state{};
  segment::AppliedState followed{};       ///< desired state applied so far
  std::uint32_t credits_after_drain = 0;  ///< credits to restore if draining is cancelled
  bool unattended = false;                ///< all credits are granted because the control plane is down

  // State of the version 2 negotiation as published in the segment's connection table.
  bool published_properties = false;
  std::uint32_t published_version = 0;
  std::uint32_t peaks_read = 0;  ///< value of ReactorArea::peaks_read when the published peak began
};

class ConnectionTable {
 public:
  /// Called at setup. Both arguments must outlive the table. `incarnations` is that of ReactorArea.
  ConnectionTable(rpcrdma::Engine& engine, std::atomic<std::uint32_t>& incarnations)
      : engine_(engine), incarnations_(incarnations), records_(engine.connection_count()) {}

  std::uint16_t size() const noexcept { return static_cast<std::uint16_t>(records_.size()); }
  /// Returns the number of connections that are open, or closed but not yet reported.
  std::uint32_t in_use() const noexcept { return in_use_; }
  rpcrdma::Connection& connection(std::uint16_t number) noexcept { return engine_.connection(number); }
  ConnectionRecord& record(std::uint16_t number) noexcept {
    static_cast<void>(SLUICE_INVARIANT(number < records_.size(), table_index));
    return records_[number];
  }
  ConnectionRecord& record(const rpcrdma::Connection& connection) noexcept {
    return record(connection.number());
  }

  void add() noexcept {
    static_cast<void>(SLUICE_INVARIANT(in_use_ < records_.size(), reactor_state));
    ++in_use_;
  }
  /// Begins the record of a connection under a new incarnation.
  ConnectionRecord& begin(const rpcrdma::Connection& connection, const ConnectionRecord& record) noexcept;
  /// Removes and returns the record of a closed connection.
  ConnectionRecord remove(const rpcrdma::Connection& connection) noexcept {
    static_cast<void>(SLUICE_INVARIANT(in_use_ > 0, reactor_state));
    --in_use_;
    return std::exchange(record(connection), {});
  }

  /// Returns the open connection with this identifier of connection management, or null.
  rpcrdma::Connection* find(rdma::CmId id) noexcept;
  /// Returns the open connection with this number and incarnation, or null. Both come from another process,
  /// so any value is valid input.
  rpcrdma::Connection* find(std::uint32_t number, std::uint32_t incarnation) noexcept;
  /// Returns the open connection with this number, or null.
  rpcrdma::Connection* find_number(std::uint32_t number) noexcept;
  /// Returns the dialed connection with this number and queue pair that is not yet established, or null. Such
  /// connections have no identifier of connection management yet.
  rpcrdma::Connection* find_dialed(std::uint32_t number, std::uint32_t queue_pair) noexcept;

 private:
  rpcrdma::Engine& engine_;
  std::atomic<std::uint32_t>& incarnations_;
  std::vector<ConnectionRecord> records_;  ///< indexed by connection number
  std::uint32_t in_use_ = 0;
};

}  // namespace sluice::reactor
