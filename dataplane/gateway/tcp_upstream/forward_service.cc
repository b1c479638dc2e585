// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/forward_service.h"

#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4.h"
namespace sluice::tcp_upstream {

namespace {

/// Maximum bytes of an RPC reply header with the longest verifier, and of the RPCSEC_GSS wrapping of the
/// results.
constexpr std::uint64_t kMostReplyHeaderBytes = 1024;
}  // namespace

bool ForwardService::is_stateful(const service::Binding& binding) noexcept {
  return binding.program == ulb::kNfsProgram && binding.version >= ulb::kNfs4Version;
}

service::Execution ForwardService::execute(service::Call& call) noexcept {
  auto& forwarded = call.state<ForwardedCall>();
  if (forwarded.state == ForwardedCall::State::Held)
    return upstream_.calls().deliver_held(forwarded) ? service::Execution::Started
                                                     : service::Execution::NeedsMemory;
  if (call.client() == nullptr) {
    call.complete(rpc::AcceptStat::SystemErr);
    return service::Execution::Started;
  }
  begin(call, forwarded);
  upstream_.calls().submit(forwarded);
  return service::Execution::Started;
}

service::Execution ForwardService::execute_tagged(service::Call& call,
                                                  const ulb::CallHandles& handles) noexcept {
  auto& forwarded = call.state<ForwardedCall>();
  begin(call, forwarded);
  const rpc::CallHeader& header = call.header();
  forwarded.procedure = static_cast<std::uint8_t>(header.procedure);
  forwarded.message = ulb::remove_tags(header.program, header.procedure, call.writable_message(),
                                       call.arguments().size(), handles);
  upstream_.calls().submit(forwarded);
  return service::Execution::Started;
}

/// Initializes the state of a call from the message that the client has sent.
void ForwardService::begin(service::Call& call, ForwardedCall& forwarded) noexcept {
  const bool signs_xid = call.header().credential.flavor == rpc::AuthFlavor::RpcSecGss;
  SLUICE_INVARIANT_DEBUG(forwarded.state == ForwardedCall::State::None, gateway_state);
  SLUICE_INVARIANT_DEBUG(forwarded.connection == nullptr && forwarded.memory == nullptr, pool_balance);
  upstream_.register_client(*call.client());
  forwarded.call = &call;
  forwarded.service = this;
  ++calls_;
  forwarded.handle_tag = handle_tag_;
  forwarded.own_connection = own_connections_ || signs_xid;
  forwarded.keeps_xid = signs_xid;
  forwarded.in_session =
      own_connections_ && !signs_xid && ulb::nfs4_has_session(call.header().procedure, call.arguments());
  forwarded.need = need_of(call);
  forwarded.repetition = binding_.repetition_of(call.header().procedure, call.arguments());
  const bool clear = !rpc::is_wrapped(call.header().credential);
  if (clear && own_connections_)
    compared_.restore(binding_, call.header().procedure, call.writable_arguments());
  forwarded.announces_sizes = clear && binding_.announces(call.header().procedure, call.arguments());
  forwarded.message = call.message();
  if (clear) change_call(call, forwarded);
  forwarded.begun_ns = upstream_.shared().now_ns();
}

/// Changes the arguments of a call, which are not encrypted, and ends its message at an unknown operation.
void ForwardService::change_call(service::Call& call, ForwardedCall& forwarded) noexcept {
  UpstreamShared& shared = upstream_.shared();
  const auto arguments = call.writable_arguments();
  const service::CallChanges changes =
      binding_.change(call.header().procedure, arguments, shared.config.withheld);
  forwarded.tells_withheld = changes.results_tell;
  if (changes.arguments_bytes)
    forwarded.message =
        forwarded.message.first(forwarded.message.size() - arguments.size() + *changes.arguments_bytes);
  if (!changes.unknown_operation) return;
  shared.count(segment::UpstreamCounter::unknown_operations);
  shared.area.unknown_operation.note(*changes.unknown_operation);
}

void ForwardService::release(service::Call& call) noexcept {
  auto& forwarded = call.state<ForwardedCall>();
  upstream_.calls().admission().release(forwarded);
  if (forwarded.service == this && SLUICE_INVARIANT(calls_ > 0, pool_balance)) --calls_;
}

void ForwardService::call_abandoned(service::Call& call) noexcept {
  upstream_.calls().abandon(call.state<ForwardedCall>());
}

/// Returns the memory that the longest possible reply to the client needs. A long reply is received directly
/// into its final memory. The eligible items of a short reply are copied out of the stream's buffer. A reply
/// of either kind is also kept in this memory if the transport has no room for its results, or if the call
/// has not been sent completely.
ReplyNeed ForwardService::need_of(service::Call& call) const noexcept {
  std::uint64_t room = call.reply_room();
  const bool bounded = binding_.max_results_bytes != nullptr && !rpc::is_wrapped(call.header().credential);
  if (room == service::kAnyReply && bounded)
    room = kMostReplyHeaderBytes + binding_.max_results_bytes(call.header().procedure, call.arguments());
  if (room > kMostShortReply) return ReplyNeed::Record;
  const bool sent_in_parts = call.message().size() > tcp::kMaxCopiedBytes;
  const bool fits_slot = room <= rpc::kMinReplyBytes + call.results().remaining();
  return call.offered_results() > 0 || sent_in_parts || !fits_slot ? ReplyNeed::Item : ReplyNeed::None;
}

void ForwardService::adapt(const ForwardedCall& forwarded, std::span<std::byte> record) noexcept {
  xdr::Reader reader(record);
  const rpc::ReplyDecodeResult reply = rpc::decode_reply(reader);
  if (!reply.ok || !reply.header.success()) return;
  const auto results = record.subspan(reader.position());
  if (forwarded.announces_sizes || forwarded.tells_withheld) compared_.note(binding_, results, nullptr);
  if (forwarded.announces_sizes)
    binding_.cap_sizes(results, upstream_.shared().config.replies.carried(), nullptr);
  if (forwarded.tells_withheld)
    binding_.withhold_in_results(results, upstream_.shared().config.withheld, nullptr);
  if (forwarded.handle_tag != 0)
    ulb::tag_file_systems(binding_.program, forwarded.procedure, results, forwarded.handle_tag);
}

bool ForwardService::refuses_connection(std::span<const std::byte> record) noexcept {
  xdr::Reader reader(record);
  const rpc::ReplyDecodeResult reply = rpc::decode_reply(reader);
  return reply.ok && reply.header.success() && ulb::nfs4_refuses_connection(reader.rest());
}

ForwardService::Written ForwardService::write_reply(ForwardedCall& forwarded,
                                                    const ReplyRecord& record) noexcept {
  service::Call& call = *forwarded.call;
  std::array<service::Item, service::kMaxResultItems> items;
  std::size_t item_count = 0;
  xdr::Reader reader(record.bytes);
  const rpc::ReplyDecodeResult reply = rpc::decode_reply(reader);
  if (reply.ok && reply.header.success() && binding_.result_items != nullptr &&
      !rpc::is_wrapped(call.header().credential))
    item_count = binding_.result_items(
        call.header().procedure, reader.rest(), nullptr,
        std::span(items).first(smaller_of<std::size_t>(items.size(), call.offered_results())));
  const std::size_t results_at = record.bytes.size() - reader.remaining();
  const bool tagged = forwarded.handle_tag != 0 && binding_.program == ulb::kNfsProgram && reply.ok &&
                      reply.header.success() && item_count == 0;

  std::size_t results_bytes = xdr::padded(record.bytes.size());
  if (tagged) results_bytes += ulb::growth_by_tags(forwarded.procedure, record.bytes.subspan(results_at));
  std::size_t data_bytes = 0;
  for (std::size_t i = 0; i < item_count; ++i) {
    items[i].offset += results_at;
    SLUICE_INVARIANT_DEBUG(items[i].offset + std::size_t{items[i].bytes} <= record.bytes.size(),
                           buffer_bounds);
    results_bytes -= xdr::padded(items[i].bytes);
    data_bytes += items[i].bytes;
  }
  // require_results() counts only the bytes that follow the shortest reply header.
  if (!call.require_results(results_bytes - smaller_of(results_bytes, rpc::kMinReplyBytes)))
    return Written::Nothing;

  call.write_whole_reply();
  xdr::Writer& results = call.results();
  std::size_t from = xdr::kUnit;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < item_count; ++i) {
    const auto data = record.bytes.subspan(items[i].offset, items[i].bytes);
    results.opaque_fixed(record.bytes.subspan(from, items[i].offset - from));
    from = items[i].offset + xdr::padded(data.size());
    rdma::Sge piece{const_cast<std::byte*>(data.data()), items[i].bytes, record.lkey};
    if (!record.registered) {
      SLUICE_INVARIANT_DEBUG(forwarded.memory != nullptr && copied + data.size() <= kItemBytes,
                             buffer_bounds);
      piece.address = forwarded.memory + copied;
      if (!data.empty()) std::memcpy(piece.address, data.data(), data.size());
      copied += data.size();
    }
    if (piece.length > 0) call.add_result_piece(piece);
    call.add_result_item(piece.length);
  }
  if (tagged) {
    results.opaque_fixed(record.bytes.subspan(from, results_at - from));
    from = record.bytes.size();
    upstream_.shared().count(segment::UpstreamCounter::long_handles,
                             ulb::write_tagged(results, forwarded.procedure, record.bytes.subspan(results_at),
                                               forwarded.handle_tag));
  }
  results.opaque_fixed(record.bytes.subspan(from));
  return data_bytes == 0 ? Written::Copy : Written::Pieces;
}

namespace {

using Counter = segment::UpstreamCounter;
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
    if (members_[i]->handle_tag() == tag) return members_[i];
  return nullptr;
}

Execution ExportGroup::execute(service::Call& call) noexcept {
  SLUICE_INVARIANT_DEBUG(count_ > 0, table_index);
  auto& forwarded = call.state<ForwardedCall>();
  if (forwarded.state == ForwardedCall::State::Held) return forwarded.service->execute(call);
  const rpc::CallHeader& header = call.header();
  if (header.credential.flavor == rpc::AuthFlavor::RpcSecGss) {
    // The security context belongs to one upstream, and its signature covers the handles that the gateway
    // would replace.
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

/// Forwards the call to the upstream that its handles select. A handle with an unknown tag may have been
/// returned under an earlier configuration, so it is stale: access to its file has been revoked (RFC 1813,
/// section 2.6).
Execution ExportGroup::route(service::Call& call, const ulb::CallHandles& handles) noexcept {
  ForwardService* const target = find(handles.tags[0]);
  for (std::size_t i = 0; i < handles.count; ++i) {
    if (find(handles.tags[i]) != nullptr) continue;
    members_[0]->count(Counter::unknown_handles);
    return refuse(call, ulb::Nfs3Error::Stale);
  }
  SLUICE_INVARIANT_DEBUG(target != nullptr, table_index);
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

void ExportGroup::add(ForwardService& member) noexcept {
  static_cast<void>(SLUICE_INVARIANT(member.handle_tag() != 0, gateway_state));
  if (SLUICE_INVARIANT(count_ < members_.size(), table_index)) members_[count_++] = &member;
}

void ExportGroup::remove(const ForwardService& member) noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count_; ++i)
    if (members_[i] != &member) members_[kept++] = members_[i];
  count_ = kept;
}

}  // namespace sluice::tcp_upstream
