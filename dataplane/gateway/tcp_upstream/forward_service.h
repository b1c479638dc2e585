// SPDX-License-Identifier: Apache-2.0
//
// A program and version that an upstream server serves over TCP. After its Read chunks have been pulled into
// the message, a call is forwarded with only its XID changed. The reply is received into registered memory,
// from which its eligible items are written to the client.
//
// If several upstreams serve NFS 3, ExportGroup selects the service by the tags of a call's handles. The
// service removes the tags from the call and adds them to the handles in the reply.
//
// Only the owning reactor may call. The transport owns the calls, and the Upstream outlives the service.
#pragma once

#include <string>

#include "dataplane/gateway/tcp_upstream/upstream.h"
#include "dataplane/service/api/service.h"
#include "dataplane/ulb/nfs4_comparisons.h"
#include "dataplane/ulb/tagged_handles.h"

namespace sluice::tcp_upstream {

class ForwardService final : public service::Service {
 public:
  /// Setup. The service has no program yet.
  explicit ForwardService(Upstream& upstream)
      : upstream_(upstream),
        compared_(upstream.shared().config.replies.carried(), upstream.shared().config.withheld) {}

  /// Gives the service a program. Requires that it has no calls in progress and is not offered.
  void assign(const service::Binding& binding) noexcept {
    static_cast<void>(SLUICE_INVARIANT(calls_ == 0, gateway_state));
    binding_ = binding;
    own_connections_ = is_stateful(binding);
    compared_.forget();
  }
  const service::Binding& binding() const noexcept override { return binding_; }
  service::Route route() const noexcept { return {binding_.program, binding_.version}; }
  bool has_calls() const noexcept { return calls_ > 0; }
  std::uint32_t handle_tag() const noexcept { return handle_tag_; }
  /// Sets the tag of the program's file handles on the client side, or zero, for all calls that begin later.
  void set_handle_tag(std::uint32_t tag) noexcept { handle_tag_ = tag; }
  /// Sets what is withheld from clients.
  void withhold(const service::Withheld& withheld) noexcept { compared_.withhold(withheld); }
  void count(segment::UpstreamCounter counter) noexcept { upstream_.shared().count(counter); }
  service::Execution execute(service::Call& call) noexcept override;
  /// Executes a call whose handles have the service's tag. The call must not use RPCSEC_GSS, which signs the
  /// message.
  service::Execution execute_tagged(service::Call& call, const ulb::CallHandles& handles) noexcept;
  void release(service::Call& call) noexcept override;
  void call_abandoned(service::Call& call) noexcept override;
  void client_gone(service::Client& client) noexcept override { upstream_.client_gone(client); }

  /// A received reply message, before it is delivered to its call.
  struct ReplyRecord {
    std::span<const std::byte> bytes;
    bool registered = false;  ///< true if the bytes are in the call's registered memory
    rdma::Lkey lkey{};        ///< local key of the call's memory
  };
  /// Adapts the reply of a call that announces sizes, tells withheld features or has a handle tag. Caps
  /// announced sizes, removes withheld features, and adds the tag to file system identifiers.
  void adapt(const ForwardedCall& forwarded, std::span<std::byte> record) noexcept;
  /// Returns whether this is the reply to a call of a session that the upstream has refused, without
  /// execution, on this connection.
  static bool refuses_connection(std::span<const std::byte> record) noexcept;
  enum class Written : std::uint8_t {
    Nothing,  ///< nothing written: the transport lacks memory, and executes the call again when it has some
    Copy,     ///< written; the results do not refer to the call's memory
    Pieces,   ///< written; the results refer to the call's memory
  };
  /// Writes the results of a call from a reply whose XID matches.
  Written write_reply(ForwardedCall& forwarded, const ReplyRecord& record) noexcept;

 private:
  void begin(service::Call& call, ForwardedCall& forwarded) noexcept;
  void change_call(service::Call& call, ForwardedCall& forwarded) noexcept;
  static bool is_stateful(const service::Binding& binding) noexcept;
  ReplyNeed need_of(service::Call& call) const noexcept;

  Upstream& upstream_;
  service::Binding binding_;
  bool own_connections_ = false;
  std::uint32_t handle_tag_ = 0;
  std::uint32_t calls_ = 0;  ///< calls from begin() to release()
  ulb::ComparedAttributes compared_;
};

}  // namespace sluice::tcp_upstream
