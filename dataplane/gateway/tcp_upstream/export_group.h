// SPDX-License-Identifier: Apache-2.0
//
// A program of NFS 3 that several upstreams serve, each with exports of its own: MOUNT asks the upstream of a path and
// puts its tag in front of the file handle, and each handle that a client gets later has the tag of where it comes from.
// So a call tells by its handle where it goes, after a restart of either plane too. The tag says where, and nothing
// else: whether a handle is good, and for whom, is for the upstream to say.
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
  /// Whether several upstreams may serve the program.
  static bool shares(const service::Binding& binding) noexcept;

  /// Setup.
  explicit ExportGroup(const service::Binding& binding) : binding_(binding) {}
  /// Setup: one of at most segment::kMaxUpstreams, with a tag of its own, or none while it is spare; outlives the group, which needs one to serve calls.
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
