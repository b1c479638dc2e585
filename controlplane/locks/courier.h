// SPDX-License-Identifier: Apache-2.0
//
// Reliable calls to an RPC program of another host, which is found through that host's rpcbind. A call that
// could not be delivered, or has had no reply for a while, is retransmitted until its deadline. Calls keep
// their order. They must be idempotent for one owner, which calls of NLM and NSM are.
//
// Single-threaded; runs on the service's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "controlplane/locks/protocol.h"
#include "controlplane/locks/statistics.h"
#include "controlplane/onc_rpc/rpc_link.h"
#include "controlplane/onc_rpc/rpcbind.h"
#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"
#include "dataplane/rpc/message.h"

namespace sluice::locks {

/// Timeout of an attempt. The next attempt uses another connection.
inline constexpr std::uint64_t kAttemptNs = 15'000'000'000;
/// Interval between attempts.
inline constexpr std::uint64_t kAgainNs = 1'000'000'000;
/// Timeout of a query to rpcbind for the port.
inline constexpr std::uint64_t kAskPortNs = 5'000'000'000;

/// Address of a program. A port of rpcbind other than the default is for tests.
struct Destination {
  PeerAddress address;
  std::optional<PeerAddress> from{};  ///< local address to call from
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  bool privileged_port = true;
  std::uint16_t rpcbind_port = onc_rpc::kRpcbindPort;
};

/// Deadline of a call that is retransmitted without a limit.
inline constexpr std::uint64_t kNoDeadline = ~std::uint64_t{0};

/// Calls to one program.
class Courier {
 public:
  /// Receives the entire reply, which may be an RPC error, or an empty span after the deadline.
  using Done = Function<void(std::span<const std::byte> reply)>;

  /// `statistics` outlives this object.
  Courier(const Destination& to, LockStatistics& statistics) : to_(to), statistics_(statistics) {}
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Changes the host's address. Outstanding calls move to the new address.
  void move_to(const PeerAddress& address);
  const Destination& destination() const { return to_; }
  /// Sends a complete call message, in which only the XID is replaced. Never invokes `done` before this
  /// function returns.
  void send(Bytes call, std::uint64_t now_ns, std::uint64_t deadline_ns, Done done);
  bool idle() const { return calls_.empty(); }
  /// Returns the last failure as a clause, or null if there is none.
  const char* problem() const { return problem_; }

  void prepare(PollSet& set);
  void poll(const PollSet& set, std::uint64_t now_ns);

 private:
  struct Call {
    std::uint64_t number = 0;
    Bytes message;
    std::uint64_t deadline_ns = 0;
    bool under_way = false;
    bool ended = false;
    Done done;
  };

  void find_port(std::uint64_t now_ns);
  void port_found(onc_rpc::Failure failure, xdr::Reader results);
  void dispatch(std::uint64_t now_ns);
  void answered(std::uint64_t number, onc_rpc::Failure failure, std::span<const std::byte> reply);
  void again(onc_rpc::Failure failure);

  Destination to_;
  LockStatistics& statistics_;
  onc_rpc::RpcLink rpcbind_;
  onc_rpc::RpcLink link_;
  std::uint16_t port_ = 0;  ///< zero if unknown
  bool finding_port_ = false;
  std::uint64_t not_before_ns_ = 0;
  std::uint64_t now_ns_ = 0;
  std::uint64_t last_number_ = 0;
  std::list<Call> calls_;  ///< in the order in which they are sent
  const char* problem_ = nullptr;
};

/// Encodes a call with this credential, for send().
Bytes call_message(const onc_rpc::Procedure& procedure, const rpc::OpaqueAuth& credential,
                   std::span<const std::byte> arguments);

/// Limit of client programs with calls in progress or within the last kIdleCalleeNs.
inline constexpr std::size_t kMaxCallees = 256;
inline constexpr std::uint64_t kIdleCalleeNs = 30'000'000'000;

/// Calls to RPC programs on client hosts. Each call is sent from the local address that the client knows,
/// because Linux accepts a GRANTED from no other address.
class Callbacks {
 public:
  explicit Callbacks(LockStatistics& statistics) : statistics_(statistics) {}

  /// Sends a call as Courier::send() does. Returns false if there are too many callees.
  bool call(const Destination& to, Bytes message, std::uint64_t now_ns, std::uint64_t deadline_ns,
            Courier::Done done);
  std::size_t callees() const { return callees_.size(); }
  void prepare(PollSet& set);
  void poll(const PollSet& set, std::uint64_t now_ns);

 private:
  struct Callee {
    Callee(const Destination& to, LockStatistics& statistics) : courier(to, statistics) {}
    Courier courier;
    std::uint64_t used_ns = 0;
  };
  using Key = std::tuple<PeerAddress, PeerAddress, std::uint32_t>;

  LockStatistics& statistics_;
  bool in_turn_ = false;  ///< while true, no callee may be erased
  std::map<Key, Callee> callees_;
};

}  // namespace sluice::locks
