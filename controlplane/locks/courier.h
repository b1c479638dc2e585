// SPDX-License-Identifier: Apache-2.0
//
// Calls to an RPC program of another host, found through that host's rpcbind, with patience: a call that could not be
// delivered, or has had no reply for a while, is sent again until its deadline, and calls keep their order. So they have
// to be such as may be executed twice, as those of NLM and NSM are for the same owner.
//
// One thread, its service's.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "controlplane/locks/protocol.h"
#include "controlplane/locks/statistics.h"
#include "controlplane/mount/protocol.h"
#include "controlplane/mount/rpc_link.h"
#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"
#include "dataplane/rpc/message.h"

namespace sluice::locks {

/// An attempt without a reply after this time is followed by another, on another connection.
inline constexpr std::uint64_t kAttemptNs = 15'000'000'000;
/// Between attempts.
inline constexpr std::uint64_t kAgainNs = 1'000'000'000;
/// How long a port is believed while nothing answers there.
inline constexpr std::uint64_t kAskPortNs = 5'000'000'000;

/// Where a program is found. A port of rpcbind other than the usual one is for tests.
struct Destination {
  PeerAddress address;
  std::optional<PeerAddress> from{};  ///< this host's address to call from
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  bool privileged_port = true;
  std::uint16_t rpcbind_port = mount::kRpcbindPort;
};

class Courier {
 public:
  /// `reply`: a whole one, whatever it says; none by the deadline: empty.
  using Done = Function<void(std::span<const std::byte> reply)>;

  /// `statistics` outlives it.
  Courier(const Destination& to, LockStatistics& statistics) : to_(to), statistics_(statistics) {}
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// The host is somewhere else now. Calls follow.
  void move_to(const PeerAddress& address);
  const Destination& destination() const { return to_; }
  /// A whole call, but for its XID. Never calls `done` before it returns.
  void send(Bytes call, std::uint64_t now_ns, std::uint64_t deadline_ns, Done done);
  bool idle() const { return calls_.empty(); }
  /// What went wrong last, as a clause; null: nothing.
  const char* problem() const { return problem_; }

  void prepare(mount::PollSet& set);
  void turn(const mount::PollSet& set, std::uint64_t now_ns);

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
  void port_found(mount::Failure failure, xdr::Reader results);
  void dispatch(std::uint64_t now_ns);
  void answered(std::uint64_t number, mount::Failure failure, std::span<const std::byte> reply);
  void again(mount::Failure failure);

  Destination to_;
  LockStatistics& statistics_;
  mount::RpcLink rpcbind_;
  mount::RpcLink link_;
  std::uint16_t port_ = 0;  ///< zero: not known
  bool finding_port_ = false;
  std::uint64_t not_before_ns_ = 0;
  std::uint64_t now_ns_ = 0;
  std::uint64_t last_number_ = 0;
  std::list<Call> calls_;  ///< in order
  const char* problem_ = nullptr;
};

/// A call with this credential, for send().
Bytes call_message(const mount::Procedure& procedure, const rpc::OpaqueAuth& credential,
                   std::span<const std::byte> arguments);

}  // namespace sluice::locks
