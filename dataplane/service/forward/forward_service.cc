// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/forward/forward_service.h"

#include <algorithm>
#include <cstring>

#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4.h"

namespace sluice::forward {

bool ForwardService::is_stateful(const service::Binding& binding) noexcept {
  return binding.program == ulb::kNfsProgram && binding.version >= ulb::kNfs4Version;
}

service::Execution ForwardService::execute(service::Call& call) noexcept {
  auto& forwarded = call.state<ForwardedCall>();
  if (forwarded.state == ForwardedCall::State::Held)
    return upstream_.deliver_held(forwarded) ? service::Execution::Started : service::Execution::NeedsMemory;
  if (call.client() == nullptr) {
    call.complete(rpc::AcceptStat::SystemErr);
    return service::Execution::Started;
  }
  const bool signs_xid = call.header().credential.flavor == rpc::AuthFlavor::RpcSecGss;
  forwarded.call = &call;
  forwarded.service = this;
  forwarded.own_connection = own_connections_ || signs_xid;
  forwarded.keeps_xid = signs_xid;
  forwarded.begun_ns = upstream_.now_ns();
  upstream_.submit(forwarded);
  return service::Execution::Started;
}

void ForwardService::release(service::Call& call) noexcept {
  upstream_.release(call.state<ForwardedCall>());
}

ForwardService::Delivery ForwardService::deliver(ForwardedCall& forwarded,
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
        std::span(items).first(std::min<std::size_t>(items.size(), call.offered_results())));
  const std::size_t results_at = record.bytes.size() - reader.remaining();

  std::size_t results_bytes = xdr::padded(record.bytes.size());
  std::size_t data_bytes = 0;
  for (std::size_t i = 0; i < item_count; ++i) {
    items[i].offset += results_at;
    results_bytes -= xdr::padded(items[i].bytes);
    data_bytes += items[i].bytes;
  }
  // require_results() counts from behind the shortest reply header.
  if (!call.require_results(results_bytes - std::min(results_bytes, rpc::kMinReplyBytes)))
    return Delivery::NeedsResults;
  if (data_bytes > 0 && !record.registered && forwarded.memory == nullptr) return Delivery::NeedsItems;

  upstream_.answered(forwarded);
  call.write_whole_reply();
  xdr::Writer& results = call.results();
  ReplyMemory& memory = upstream_.memory();
  std::size_t from = xdr::kUnit;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < item_count; ++i) {
    const auto data = record.bytes.subspan(items[i].offset, items[i].bytes);
    results.opaque_fixed(record.bytes.subspan(from, items[i].offset - from));
    from = items[i].offset + xdr::padded(data.size());
    rdma::Sge piece{const_cast<std::byte*>(data.data()), items[i].bytes, memory.records.lkey()};
    if (!record.registered) {
      piece = {forwarded.memory + copied, items[i].bytes, memory.items.lkey()};
      if (!data.empty()) std::memcpy(piece.address, data.data(), data.size());
      copied += data.size();
    }
    if (piece.length > 0) call.add_result_piece(piece);
    call.add_result_item(piece.length);
  }
  results.opaque_fixed(record.bytes.subspan(from));
  if (data_bytes == 0) upstream_.release(forwarded);
  forwarded.state = ForwardedCall::State::None;
  call.complete(rpc::AcceptStat::Success);
  return Delivery::Done;
}

}  // namespace sluice::forward
