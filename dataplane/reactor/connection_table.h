// SPDX-License-Identifier: Apache-2.0
//
// What a reactor keeps of its connections beside rpcrdma::Connection: how connection management and the
// control plane name them, and what has been published. The reactor's thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/wanted.h"
#include "pmd/connection_manager.h"

namespace sluice::reactor {

struct ConnectionRecord {
  rdma::CmId cm_id{};
  std::uint32_t incarnation = 0;  ///< as in segment::ConnectionInfo
  bool established = false;
  bool draining = false;        ///< to be closed as soon as it has no call
  bool outgoing = false;        ///< opened by this side, to a server
  bool request_unsent = false;  ///< outgoing: the control plane that runs now has no ConnectWanted of it
  PeerAddress server{};         ///< outgoing: where it goes
  std::uint16_t server_port = 0;
  std::uint32_t peer_pid = 0;    ///< zero: not a process of this machine
  std::uint64_t since_ns = 0;    ///< wall clock
  std::uint32_t queue_pair = 0;  ///< number
  std::array<std::byte, segment::kCmStateBytes> cm_state{};
  segment::Followed followed{};           ///< of what the control plane wants
  std::uint32_t credits_after_drain = 0;  ///< while draining, which may be called off
  bool unattended = false;                ///< has all its credits, since the control plane is away

  // What the connection table in the segment shows of version 2's negotiation.
  bool published_properties = false;
  std::uint32_t published_version = 0;
  std::uint32_t peaks_read = 0;  ///< of the reactor's area, when the peak that is shown started
};

class ConnectionTable {
 public:
  /// Setup. Both outlive the table. `incarnations` is ReactorArea's.
  ConnectionTable(rpcrdma::Engine& engine, std::atomic<std::uint32_t>& incarnations)
      : engine_(engine), incarnations_(incarnations), records_(engine.connection_count()) {}

  std::uint16_t size() const noexcept { return static_cast<std::uint16_t>(records_.size()); }
  /// Connections that are open, or closed and not yet reported.
  std::uint32_t in_use() const noexcept { return in_use_; }
  rpcrdma::Connection& connection(std::uint16_t number) noexcept { return engine_.connection(number); }
  ConnectionRecord& record(std::uint16_t number) noexcept { return records_[number]; }
  ConnectionRecord& record(const rpcrdma::Connection& connection) noexcept {
    return records_[connection.number()];
  }

  void add() noexcept { ++in_use_; }
  /// The record of a connection that begins, under an incarnation of its own.
  ConnectionRecord& begin(const rpcrdma::Connection& connection, const ConnectionRecord& record) noexcept;
  /// A connection that has ended: its record, which is empty from here on.
  ConnectionRecord remove(const rpcrdma::Connection& connection) noexcept {
    --in_use_;
    return std::exchange(record(connection), {});
  }

  /// The open connection that connection management knows by this id; null when there is none.
  rpcrdma::Connection* find(rdma::CmId id) noexcept;
  /// The open connection of this number, unless it is another one than `incarnation`. Both come from another
  /// process: any value is valid input.
  rpcrdma::Connection* find(std::uint32_t number, std::uint32_t incarnation) noexcept;
  /// The open connection of this number.
  rpcrdma::Connection* find_number(std::uint32_t number) noexcept;
  /// The same for one that was dialed and is not established: these have no id of connection management yet.
  rpcrdma::Connection* find_dialed(std::uint32_t number, std::uint32_t queue_pair) noexcept;

 private:
  rpcrdma::Engine& engine_;
  std::atomic<std::uint32_t>& incarnations_;
  std::vector<ConnectionRecord> records_;  ///< by connection number
  std::uint32_t in_use_ = 0;
};

}  // namespace sluice::reactor
