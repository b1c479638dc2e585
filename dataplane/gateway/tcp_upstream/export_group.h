// SPDX-License-Identifier: Apache-2.0
//
// An NFS 3 program that several upstreams serve, each with its own exports. MOUNT queries the upstream that
// exports a path and prepends its tag to the file handle. Each handle that a client receives later carries
// the tag of the upstream that returned it. The handles of a call therefore select its upstream, also after a
// restart of either plane. The tag only selects the upstream, which alone decides whether a handle is valid
// and for which client.
//
// Only the owning reactor may call.
#pragma once

#include <array>

#include "dataplane/gateway/tcp_upstream/forward_service.h"
#include "dataplane/service/api/service.h"
#include "dataplane/ulb/tagged_handles.h"

namespace sluice::tcp_upstream {

class ExportGroup final : public service::Service {
 public:
  /// Returns whether several upstreams may serve the program.
  static bool shares(const service::Binding& binding) noexcept;

  /// Setup.
  explicit ExportGroup(const service::Binding& binding) : binding_(binding) {}
  /// Adds a member at setup. A group has 1 to segment::kMaxUpstreams members. Each has a unique tag, or no
  /// tag while it is spare, and outlives the group.
  void add(ForwardService& member) noexcept { members_[count_++] = &member; }

  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override;
  void release(service::Call& call) noexcept override;
  void call_abandoned(service::Call& call) noexcept override;
  void client_gone(service::Client& client) noexcept override;

 private:
  ForwardService* find(std::uint32_t tag) const noexcept;
  service::Execution route(service::Call& call, const ulb::CallHandles& handles) noexcept;
  service::Execution refuse(service::Call& call, ulb::Nfs3Error error) noexcept;

  const service::Binding binding_;
  std::array<ForwardService*, segment::kMaxUpstreams> members_{};
  std::size_t count_ = 0;
};

}  // namespace sluice::tcp_upstream
