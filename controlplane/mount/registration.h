// SPDX-License-Identifier: Apache-2.0
//
// Our addresses at this host's rpcbind (RFC 1833). An address is registered where rpcbind has none; one of another
// server stays. At the end only what names us is withdrawn, and so it is while another process of ours that serves the
// addresses is down. Asked again from time to time: rpcbind may start later than we do, forget, or become free.
//
// One thread, its service's.
#pragma once

#include <string>
#include <vector>

#include "controlplane/mount/poll_set.h"
#include "controlplane/mount/protocol.h"
#include "controlplane/mount/rpc_link.h"
#include "controlplane/mount/statistics.h"
#include "dataplane/base/function.h"

namespace sluice::mount {

inline constexpr const char* kRpcbindSocket = "/run/rpcbind.sock";
inline constexpr std::uint64_t kRegistrationNs = 5'000'000'000;  ///< for each of rpcbind's answers
inline constexpr std::uint64_t kRegisterAgainNs = 60'000'000'000;
inline constexpr std::uint64_t kWithdrawNs = 60'000'000;  ///< in all; rpcbind may hang, and a stop has 200 ms
/// Period of checking whether the addresses are served.
inline constexpr std::uint64_t kServedCheckNs = 500'000'000;

/// Words for the log.
struct ServiceName {
  std::string name;      ///< such as "MOUNT"
  std::string if_other;  ///< what it means that rpcbind has another server, and what to do
};
inline const ServiceName kMountName{
    "MOUNT", "clients that ask rpcbind come to that. If it is gone, 'rpcinfo -d 100005 3' removes it"};

inline const ServiceName kNfsName{
    "NFS",
    "clients that ask rpcbind come to that, unless they mount with port=. This host's own NFS server has it "
    "while "
    "it runs: stop it, or 'rpcinfo -d 100003 3' and 'rpcinfo -d 100003 4' if it is gone"};

/// The listener of the reverse gateway: NFS over TCP, served by the process of the data plane.
struct NfsListener {
  PeerAddress address;  ///< all zero: every address of the host
  std::uint16_t port = 0;
  Function<bool()> serves;  ///< whether it does so now
};
/// NFS versions 3 and 4 at that listener. `six`: the host has IPv6.
std::vector<Registration> registrations_of(const NfsListener& listener, bool six);

class Registrar {
 public:
  /// Whether the addresses are served; called from its thread. Empty: always.
  using Served = Function<bool()>;

  /// Universal addresses by netid; rpcbind's socket. `statistics` outlives it.
  Registrar(std::vector<Registration> own, const std::string& socket_path, MountStatistics& statistics,
            ServiceName service = kMountName, Served served = {});

  void prepare(PollSet& set);
  void turn(const PollSet& set, std::uint64_t now_ns);
  /// From here on it withdraws.
  void withdraw(std::uint64_t now_ns);
  bool withdrawn() const { return state_ == State::Gone; }

 private:
  enum class State : std::uint8_t {
    Resting,      ///< until the next check
    Asking,       ///< for what is registered, and then for what is missing
    Withdrawing,  ///< the same, to remove ours
    Gone,         ///< at the end
  };
  enum class Outcome : std::uint8_t { Unknown, NoRpcbind, Foreign, Registered };

  void ask(std::uint64_t now_ns);
  void found(Failure failure, xdr::Reader results);
  void register_missing(const std::vector<Registration>& known);
  void remove_own(const std::vector<Registration>& known);
  void call(const Procedure& procedure, const Registration& registration);
  void called(bool accepted);
  void settle(Outcome outcome);
  bool is_served() const { return !served_ || served_(); }
  void have_withdrawn();

  const std::vector<Registration> own_;
  MountStatistics& statistics_;
  const ServiceName service_;
  const Served served_;
  RpcLink rpcbind_;
  State state_ = State::Resting;
  Outcome outcome_ = Outcome::Unknown;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_ns_ = 0;
  std::uint64_t deadline_ns_ = 0;  ///< of the withdrawal
  std::size_t calls_ = 0;          ///< that rpcbind has not answered
  bool refused_ = false;
  bool removing_ = false;
  bool asked_ = false;   ///< something may be registered
  bool ending_ = false;  ///< withdraw() was called
  std::string foreign_;  ///< of other servers, for the log
};

}  // namespace sluice::mount
