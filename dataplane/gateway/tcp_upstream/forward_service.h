// SPDX-License-Identifier: Apache-2.0
//
// A program and version that an upstream server serves over TCP. The call is forwarded unchanged but for its
// XID, after its Read chunks were pulled into the message. The reply is received into registered memory, from
// where its eligible items are written to the client.
//
// Where the upstream is one of several for NFS 3, ExportGroup gives it the calls with its handles, and their tags are
// taken off and put on here.
//
// Only the owning reactor may call. Calls belong to the transport; the Upstream outlives the service.
#pragma once

#include <string>

#include "dataplane/gateway/tcp_upstream/upstream.h"
#include "dataplane/service/api/service.h"
#include "dataplane/ulb/nfs4_comparisons.h"
#include "dataplane/ulb/tagged_handles.h"

namespace sluice::tcp_upstream {

class ForwardService final : public service::Service {
 public:
  /// `handle_tag` of the program's file handles on the clients' side; zero: they have none.
  ForwardService(Upstream& upstream, const service::Binding& binding, std::uint32_t handle_tag = 0)
      : upstream_(upstream),
        binding_(binding),
        own_connections_(is_stateful(binding)),
        handle_tag_(handle_tag),
        compared_(upstream.shared().config.replies.carried(), upstream.shared().config.withheld) {}

  const service::Binding& binding() const noexcept override { return binding_; }
  std::uint32_t handle_tag() const noexcept { return handle_tag_; }
  /// Of calls that begin from now on. Zero, of an upstream in a group: there are none.
  void set_handle_tag(std::uint32_t tag) noexcept { handle_tag_ = tag; }
  void count(segment::UpstreamCounter counter) noexcept { upstream_.shared().count(counter); }
  service::Execution execute(service::Call& call) noexcept override;
  /// The same of a call whose handles have its tag. Not of one under RPCSEC_GSS, which signs the message.
  service::Execution execute_tagged(service::Call& call, const ulb::CallHandles& handles) noexcept;
  void release(service::Call& call) noexcept override;
  void call_abandoned(service::Call& call) noexcept override;
  void client_gone(service::Client& client) noexcept override { upstream_.client_gone(client); }

  /// A received reply message, before it is delivered to its call.
  struct ReplyRecord {
    std::span<const std::byte> bytes;
    bool registered = false;  ///< in the call's memory
    rdma::Lkey lkey{};        ///< of the call's memory
  };
  /// Lowers in a reply what does not get through the gateway, and takes out what is withheld.
  void adapt(const ForwardedCall& forwarded, std::span<std::byte> record) noexcept;
  /// Whether the upstream has refused the call, unexecuted, for the connection on which it came.
  bool refuses_connection(const ForwardedCall& forwarded, std::span<const std::byte> record) const noexcept;
  enum class Written : std::uint8_t {
    Nothing,  ///< the transport lacks memory for the results; it executes the call again when it has some
    Copy,     ///< the results have nothing of the call's memory
    Pieces,   ///< the results refer to the call's memory
  };
  /// Writes the results of a call from a reply whose XID matches.
  Written write_reply(ForwardedCall& forwarded, const ReplyRecord& record) noexcept;

 private:
  void begin(service::Call& call, ForwardedCall& forwarded) noexcept;
  static bool is_stateful(const service::Binding& binding) noexcept;
  ReplyNeed need_of(service::Call& call) const noexcept;

  Upstream& upstream_;
  const service::Binding binding_;
  const bool own_connections_;
  std::uint32_t handle_tag_;
  ulb::ComparedAttributes compared_;
};

}  // namespace sluice::tcp_upstream
