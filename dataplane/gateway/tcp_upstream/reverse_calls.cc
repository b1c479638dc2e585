// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/reverse_calls.h"

#include "dataplane/gateway/tcp_upstream/upstream_connection.h"

namespace sluice::tcp_upstream {

using Counter = segment::UpstreamCounter;

ReverseCalls::ReverseCalls(UpstreamShared& shared) : shared_(shared) {
  free_.reserve(calls_.size());
  for (Outstanding& call : calls_) {
    call.calls = this;
    free_.push_back(&call);
  }
}

void ReverseCalls::on_call(UpstreamConnection& connection, std::span<const std::byte> record) noexcept {
  xdr::Reader reader(record);
  rpc::CallHeader header;
  if (rpc::decode_call(reader, header) != rpc::CallDecode::Ok) return shared_.count(Counter::bad_records);
  const auto xid = static_cast<std::uint32_t>(header.xid);
  if (connection.client() == nullptr) return refuse(connection, xid, rpc::AcceptStat::ProgUnavail);
  if (free_.empty()) return refuse(connection, xid, rpc::AcceptStat::SystemErr);
  Outstanding& call = *free_.back();
  free_.pop_back();
  call.connection = &connection;
  call.epoch = connection.epoch();
  call.xid = xid;
  shared_.count(Counter::callbacks);
  if (connection.client()->call_back(record, &on_reply, &call)) return;
  give_back(call);
  refuse(connection, xid, rpc::AcceptStat::SystemErr);
}

void ReverseCalls::on_reply(void* context, std::span<const std::byte> reply) noexcept {
  Outstanding& call = *static_cast<Outstanding*>(context);
  ReverseCalls& self = *call.calls;
  if (!SLUICE_INVARIANT(call.connection != nullptr, pool_balance)) return;
  UpstreamConnection& connection = *call.connection;
  self.give_back(call);
  if (connection.epoch() != call.epoch) return;
  if (reply.empty())
    self.refuse(connection, call.xid, rpc::AcceptStat::SystemErr);
  else if (!connection.answer(call.xid, reply))
    self.shared_.count(Counter::callbacks_refused);
}

void ReverseCalls::give_back(Outstanding& call) noexcept {
  call.connection = nullptr;
  if (SLUICE_INVARIANT(free_.size() < calls_.size(), pool_balance)) free_.push_back(&call);
}

void ReverseCalls::refuse(UpstreamConnection& connection, std::uint32_t xid, rpc::AcceptStat stat) noexcept {
  shared_.count(Counter::callbacks_refused);
  std::array<std::byte, rpc::kMinReplyBytes> bytes;
  xdr::Writer writer(bytes);
  rpc::encode_accepted(writer, static_cast<rpc::Xid>(xid), {}, stat);
  connection.answer(xid, writer.written());
}

}  // namespace sluice::tcp_upstream
