// SPDX-License-Identifier: Apache-2.0
//
// The lock proxy with all its parts: NLM and NSM on one port over TCP and UDP, IPv4 and IPv6. It has its
// own thread, on which only the journal's writes may block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "controlplane/locks/journal.h"
#include "controlplane/locks/proxy.h"
#include "controlplane/locks/statistics.h"
#include "controlplane/onc_rpc/endpoint.h"
#include "controlplane/onc_rpc/poll_thread.h"
#include "dataplane/base/function.h"

namespace sluice::locks {

/// Maximum size of a call, with the longest credential and verifier.
inline constexpr std::size_t kMaxLockCallBytes =
    rpc::kMinCallBytes + std::size_t{2} * rpc::kMaxAuthBytes + kMaxArgumentsBytes;

/// Procedures of NLM version 4 and NSM version 1 (RFC 5531; protocol.h), independent of the transport.
/// Decides which hosts may call which procedure.
class LockProcedures final : public onc_rpc::CallHandler {
 public:
  using MayCall = Function<bool(const PeerAddress&)>;

  /// `clients` and `upstream` return true for addresses that may call in that role. `proxy` and `statistics`
  /// outlive this object.
  LockProcedures(LockProxy& proxy, MayCall clients, MayCall upstream, LockStatistics& statistics)
      : proxy_(proxy),
        clients_(std::move(clients)),
        upstream_(std::move(upstream)),
        statistics_(statistics) {}

  bool answer(std::span<const std::byte> call, const onc_rpc::Asker& asker, std::size_t max_reply_bytes,
              const Reply& reply) override;

 private:
  void lock_manager(const IncomingCall& call, xdr::Reader& arguments);
  void status_monitor(const IncomingCall& call, xdr::Reader& arguments, bool admitted);
  void count_call(std::uint32_t procedure);

  LockProxy& proxy_;
  const MayCall clients_;
  const MayCall upstream_;
  LockStatistics& statistics_;
};

struct LockSettings {
  std::uint16_t port = 0;                       ///< zero for any free port
  std::string rpcbind;                          ///< path of rpcbind's socket for the registration, or empty
  Function<bool(const PeerAddress&)> may_lock;  ///< returns true for clients that may lock
  std::string state{};                          ///< file in which locks are recorded, or empty
  ProxySettings proxy;
};

/// The procedures and the proxy with their sockets. Single-threaded.
class LockService final : public PolledService {
 public:
  /// Binds the sockets and loads the journal. Throws SetupError. `statistics` outlives this object.
  LockService(const LockSettings& settings, LockStatistics& statistics);

  std::uint16_t port() const { return endpoint_.port(); }
  void prepare(PollSet& set) override;
  void poll(const PollSet& set, std::uint64_t now_ns) override;
  void finish(std::uint64_t now_ns) override { endpoint_.finish(now_ns); }
  bool finished() const override { return endpoint_.finished(); }

 private:
  std::optional<Journal> journal_;  ///< empty if locks are not recorded
  LockProxy proxy_;
  LockProcedures procedures_;
  onc_rpc::Endpoint endpoint_;
};

/// The lock service on a separate thread, because writing the journal may block.
class LockServer {
 public:
  explicit LockServer(const LockSettings& settings) : service_(settings, statistics_) {}

  std::uint16_t port() const { return service_.port(); }
  const LockStatistics& statistics() const { return statistics_; }

 private:
  LockStatistics statistics_;
  LockService service_;
  onc_rpc::PollThread thread_{"locks"};
  onc_rpc::PollThread::Attachment attachment_{thread_, service_};
};

}  // namespace sluice::locks
