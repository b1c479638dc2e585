// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/forward/export_group.h"

#include "dataplane/ulb/nfs3.h"

namespace sluice::forward {
namespace {

using Counter = Upstream::Counter;
using service::Execution;

Execution complete(service::Call& call, rpc::AcceptStat stat) noexcept {
  call.complete(stat);
  return Execution::Started;
}

}  // namespace

bool ExportGroup::shares(const service::Binding& binding) noexcept {
  return binding.version == ulb::kNfs3Version &&
         (binding.program == ulb::kNfsProgram || binding.program == ulb::kNfsAclProgram);
}

ForwardService* ExportGroup::find(std::uint32_t tag) const noexcept {
  for (std::size_t i = 0; i < count_; ++i)
    if (tag != 0 && members_[i]->handle_tag() == tag) return members_[i];  // without a tag: spare
  return nullptr;
}

Execution ExportGroup::execute(service::Call& call) noexcept {
  auto& forwarded = call.state<ForwardedCall>();
  if (forwarded.state == ForwardedCall::State::Held) return forwarded.service->execute(call);
  const rpc::CallHeader& header = call.header();
  if (header.credential.flavor == rpc::AuthFlavor::RpcSecGss) {
    // Its context is one upstream's, and it signs what would be changed.
    members_[0]->count(Counter::signed_calls_refused);
    call.deny(rpc::AuthStat::RejectedCred);
    return Execution::Started;
  }
  if (header.procedure == 0) return complete(call, rpc::AcceptStat::Success);
  if (call.client() == nullptr) return complete(call, rpc::AcceptStat::SystemErr);
  const ulb::CallHandles handles = ulb::find_handles(header.program, header.procedure, call.arguments());
  switch (handles.state) {
    case ulb::CallHandles::State::NoProcedure:
      return complete(call, rpc::AcceptStat::ProcUnavail);
    case ulb::CallHandles::State::Unreadable:
      return complete(call, rpc::AcceptStat::GarbageArgs);
    case ulb::CallHandles::State::Untagged:
      members_[0]->count(Counter::unknown_handles);
      return refuse(call, ulb::Nfs3Error::BadHandle);
    case ulb::CallHandles::State::Tagged:
      break;
  }
  return route(call, handles);
}

/// A handle with another tag may have been given out: under another configuration. RFC 1813, section 2.6: the access to its
/// file has been revoked.
Execution ExportGroup::route(service::Call& call, const ulb::CallHandles& handles) noexcept {
  ForwardService* const target = find(handles.tags[0]);
  for (std::size_t i = 0; i < handles.count; ++i) {
    if (find(handles.tags[i]) != nullptr) continue;
    members_[0]->count(Counter::unknown_handles);
    return refuse(call, ulb::Nfs3Error::Stale);
  }
  if (handles.count > 1 && handles.tags[1] != handles.tags[0]) {
    target->count(Counter::across_upstreams);
    return refuse(call, ulb::Nfs3Error::CrossDevice);
  }
  return target->execute_tagged(call, handles);
}

Execution ExportGroup::refuse(service::Call& call, ulb::Nfs3Error error) noexcept {
  ulb::write_error(call.results(), binding_.program, call.header().procedure, error);
  return complete(call, rpc::AcceptStat::Success);
}

void ExportGroup::release(service::Call& call) noexcept {
  if (ForwardService* const service = call.state<ForwardedCall>().service) service->release(call);
}

void ExportGroup::call_abandoned(service::Call& call) noexcept {
  if (ForwardService* const service = call.state<ForwardedCall>().service) service->call_abandoned(call);
}

void ExportGroup::client_gone(service::Client& client) noexcept {
  for (std::size_t i = 0; i < count_; ++i) members_[i]->client_gone(client);
}

}  // namespace sluice::forward
