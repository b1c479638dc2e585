// SPDX-License-Identifier: Apache-2.0
//
// Registration of the gateway's addresses with this host's rpcbind (RFC 1833). An address is registered if
// rpcbind has none for the program; an address of another server is left alone. Only the gateway's own
// addresses are withdrawn, at shutdown and while the process that serves them is down. The registration is
// checked periodically, because rpcbind may start later, lose its entries, or become available.
//
// Single-threaded; runs on the service's thread.
#pragma once

#include <string>
#include <vector>

#include "controlplane/onc_rpc/rpc_link.h"
#include "controlplane/onc_rpc/rpcbind.h"
#include "controlplane/onc_rpc/statistics.h"
#include "dataplane/base/function.h"
#include "dataplane/base/polled_service.h"

namespace sluice::onc_rpc {

inline constexpr std::uint64_t kRegistrationNs = 5'000'000'000;  ///< timeout for each reply of rpcbind
inline constexpr std::uint64_t kRegisterAgainNs = 60'000'000'000;
inline constexpr std::uint64_t kWithdrawNs = 60'000'000;  ///< total time for the withdrawal; rpcbind may
                                                          ///< hang, and a stop has 200 ms
/// Interval between checks whether the addresses are served.
inline constexpr std::uint64_t kServedCheckNs = 500'000'000;

/// Phrases for the log.
struct ServiceName {
  std::string name;      ///< such as "MOUNT"
  std::string if_other;  ///< consequence of another server at rpcbind, and what to do
};

class Registrar {
 public:
  /// Returns true if the addresses are served. Called on the registrar's thread; empty means always.
  using Served = Function<bool()>;

  /// `own` are the registrations of the service, and `socket_path` is rpcbind's socket. `statistics` outlives
  /// this object.
  Registrar(std::vector<Registration> own, const std::string& socket_path, ServerStatistics& statistics,
            ServiceName service, Served served = {});

  void prepare(PollSet& set);
  void poll(const PollSet& set, std::uint64_t now_ns);
  /// Begins the final withdrawal.
  void withdraw(std::uint64_t now_ns);
  bool withdrawn() const { return state_ == State::Gone; }

 private:
  enum class State : std::uint8_t {
    Resting,      ///< idle until the next check
    Asking,       ///< queries the registered addresses, then registers the missing ones
    Withdrawing,  ///< queries the registered addresses, then removes the gateway's own
    Gone,         ///< final state after withdraw()
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
  ServerStatistics& statistics_;
  const ServiceName service_;
  const Served served_;
  RpcLink rpcbind_;
  State state_ = State::Resting;
  Outcome outcome_ = Outcome::Unknown;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_ns_ = 0;
  std::uint64_t deadline_ns_ = 0;  ///< deadline of the final withdrawal
  std::size_t calls_ = 0;          ///< calls that rpcbind has not answered
  bool refused_ = false;
  bool removing_ = false;
  bool asked_ = false;   ///< set if the gateway's addresses may be registered
  bool ending_ = false;  ///< set after withdraw() was called
  std::string foreign_;  ///< addresses of other servers, for the log
};

}  // namespace sluice::onc_rpc
