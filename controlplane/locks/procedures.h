// SPDX-License-Identifier: Apache-2.0
//
// Procedures of NLM version 4 and NSM version 1 (RFC 5531; protocol.h), independent of the transport. Decides
// which hosts may call which procedure. Single-threaded; runs on the lock proxy's thread.
#pragma once

#include "controlplane/locks/proxy.h"
#include "controlplane/mount/call_handler.h"
#include "dataplane/base/function.h"

namespace sluice::locks {

/// Maximum size of a call, with the longest credential and verifier.
inline constexpr std::size_t kMaxLockCallBytes =
    rpc::kMinCallBytes + std::size_t{2} * rpc::kMaxAuthBytes + kMaxArgumentsBytes;

class LockProcedures final : public mount::CallHandler {
 public:
  using MayCall = Function<bool(const PeerAddress&)>;

  /// `clients` and `upstream` return true for addresses that may call in that role. `proxy` and `statistics`
  /// outlive this object.
  LockProcedures(LockProxy& proxy, MayCall clients, MayCall upstream, LockStatistics& statistics)
      : proxy_(proxy),
        clients_(std::move(clients)),
        upstream_(std::move(upstream)),
        statistics_(statistics) {}

  bool answer(std::span<const std::byte> call, const mount::Asker& asker, std::size_t max_reply_bytes,
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

}  // namespace sluice::locks
