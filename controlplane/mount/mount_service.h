// SPDX-License-Identifier: Apache-2.0
//
// MOUNT version 3 over TCP and UDP, IPv4 and IPv6 (RFC 1813, appendix I). NFSv3 clients get the root handle
// here before they connect over RDMA. Nothing blocks, so that other services may share the thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "controlplane/mount/exports.h"
#include "controlplane/mount/nfs_listener.h"
#include "controlplane/mount/statistics.h"
#include "controlplane/onc_rpc/call_handler.h"
#include "controlplane/onc_rpc/endpoint.h"
#include "controlplane/onc_rpc/poll_thread.h"
#include "dataplane/base/function.h"
#include "dataplane/rpc/message.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::events {
class Journal;
}

namespace sluice::mount {

/// Maximum size of a call. A header with the longest credential and verifier and the longest path are
/// shorter.
inline constexpr std::size_t kMaxCallBytes = 2048;

/// Procedures of MOUNT version 3 (RFC 5531), independent of the transport. They run on the MOUNT thread.
class Procedures final : public onc_rpc::CallHandler {
 public:
  /// All referenced objects outlive this object.
  Procedures(Exports& exports, MountStatistics& statistics, events::Journal& journal)
      : exports_(exports), statistics_(statistics), journal_(journal) {}

  bool answer(std::span<const std::byte> call, const onc_rpc::Asker& asker, std::size_t max_reply_bytes,
              const Reply& reply) override;

 private:
  void mount(rpc::Xid xid, xdr::Reader arguments, const onc_rpc::Asker& asker, const Reply& reply);
  void list(rpc::Xid xid, const onc_rpc::Asker& asker, std::size_t max_reply_bytes, const Reply& reply);

  void refused(const std::string& path, const onc_rpc::Asker& asker);

  Exports& exports_;
  MountStatistics& statistics_;
  events::Journal& journal_;
};

/// The service with all its parts. Single-threaded.
class MountService final : public PolledService {
 public:
  /// Binds `port`, or any free port if it is zero. `rpcbind` is the path of rpcbind's socket for the
  /// registration, or empty. `nfs` is registered as well. `statistics` and `journal` outlive this object.
  /// Throws SetupError.
  MountService(std::uint16_t port, const std::string& rpcbind, std::unique_ptr<Exports> exports,
               MountStatistics& statistics, events::Journal& journal,
               const std::optional<NfsListener>& nfs = {});
  MountService(const MountService&) = delete;
  MountService& operator=(const MountService&) = delete;

  std::uint16_t port() const { return endpoint_.port(); }
  std::size_t clients() const { return endpoint_.clients(); }
  void prepare(PollSet& set) override;
  void poll(const PollSet& set, std::uint64_t now_ns) override;
  void finish(std::uint64_t now_ns) override { endpoint_.finish(now_ns); }
  bool finished() const override { return endpoint_.finished(); }

 private:
  const std::unique_ptr<Exports> exports_;
  Procedures procedures_;
  onc_rpc::Endpoint endpoint_;
};

/// Creates the exports; called once.
using MakeExports = Function<std::unique_ptr<Exports>(MountStatistics&)>;

/// The service on a poll thread.
class MountServer {
 public:
  /// Binds `port`, or any free port if it is zero, and attaches the service to `thread`, which outlives this
  /// object. `rpcbind` is the path of rpcbind's socket for the registration, or empty; a missing rpcbind is
  /// not an error. `nfs` is registered as well. `journal` outlives this object. Throws SetupError if the port
  /// is in use.
  MountServer(onc_rpc::PollThread& thread, std::uint16_t port, const std::string& rpcbind,
              const MakeExports& make_exports, events::Journal& journal,
              const std::optional<NfsListener>& nfs = {});

  std::uint16_t port() const { return service_.port(); }
  const MountStatistics& statistics() const { return statistics_; }

 private:
  MountStatistics statistics_;
  MountService service_;
  /// The destructor withdraws the registrations, for which rpcbind has kWithdrawNs.
  onc_rpc::PollThread::Attachment attachment_;
};

}  // namespace sluice::mount
