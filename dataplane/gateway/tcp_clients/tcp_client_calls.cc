// SPDX-License-Identifier: Apache-2.0
//
// This file passes the calls of a TCP client to the requester, and the server's replies to the send queue.
#include <array>
#include <optional>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/gateway/rdma_server/call_translation.h"
#include "dataplane/gateway/tcp_clients/reverse_gateway.h"
#include "dataplane/gateway/tcp_clients/tcp_client.h"
#include "dataplane/ulb/bindings.h"

namespace sluice::tcp_clients {
namespace {

/// Maximum bytes of an RPC_MISMATCH or AUTH_ERROR reply.
constexpr std::size_t kMaxDenialBytes = 64;

}  // namespace

// --- Calls

bool TcpClient::on_record(std::span<std::byte> record) noexcept {
  if (record.size() >= rpc::kMinDeniedReplyBytes) {
    switch (static_cast<rpc::MessageType>(xdr::load_u32(record.data() + xdr::kUnit))) {
      case rpc::MessageType::Call:
        return on_call(record);
      case rpc::MessageType::Reply:
        return on_client_reply(record), true;
    }
  }
  gateway_.count(ReverseGateway::Counter::bad_records);
  return disconnect(), true;
}

/// Starts a call. Returns false if no connection, free call or memory is available; the caller passes the
/// record again later.
bool TcpClient::on_call(std::span<std::byte> record) noexcept {
  SLUICE_INVARIANT_DEBUG(server_ == nullptr || server_->client() == this, table_index);
  xdr::Reader reader(record);
  rpc::CallHeader header;
  const rpc::CallDecode decoded = rpc::decode_call(reader, header);
  if (decoded == rpc::CallDecode::Truncated || decoded == rpc::CallDecode::NotACall) {
    gateway_.count(ReverseGateway::Counter::bad_records);
    return disconnect(), true;
  }
  if (decoded != rpc::CallDecode::Ok) return answer_bad_call(decoded, header.xid);
  if (server_ == nullptr) server_ = gateway_.server().connections().take(*this);
  if (server_ == nullptr || server_->yields()) return count_wait(ReverseGateway::Counter::waits_connection);
  const auto xid = static_cast<std::uint32_t>(header.xid);
  if (server_->note_repetition(xid)) return gateway_.count(ReverseGateway::Counter::duplicate_calls), true;
  ClientCall* const call = server_->take_call(xid);
  if (call == nullptr) return count_wait(ReverseGateway::Counter::waits_call);

  rdma_server::identify(*call, header, ulb::find_binding(header.program, header.version));
  if (begin(*call, header, record, record.size() - reader.remaining())) return true;
  free(*call);
  return count_wait(ReverseGateway::Counter::waits_memory);
}

bool TcpClient::count_wait(segment::ReverseCounter why) noexcept {
  if (!waiting_link.linked()) gateway_.count(why);
  return false;
}

/// Denies a call whose header is invalid. Returns false if the send queue has no room.
bool TcpClient::answer_bad_call(rpc::CallDecode defect, rpc::Xid xid) noexcept {
  std::array<std::byte, kMaxDenialBytes> message;
  xdr::Writer writer(message);
  if (defect == rpc::CallDecode::RpcMismatch)
    rpc::encode_rpc_mismatch(writer, xid);
  else
    rpc::encode_auth_error(
        writer, xid, defect == rpc::CallDecode::BadCred ? rpc::AuthStat::BadCred : rpc::AuthStat::BadVerf);
  if (!queue_.room_for(xdr::kUnit + writer.position(), 0))
    return count_wait(ReverseGateway::Counter::waits_call);
  gateway_.count(ReverseGateway::Counter::bad_calls);
  queue_.copy(tcp::record_head(writer.position(), static_cast<std::uint32_t>(xid)));
  queue_.copy(std::span(message).subspan(xdr::kUnit, writer.position() - xdr::kUnit));
  schedule_flush();
  return true;
}

/// Submits the call to the requester. Returns false if no memory is available now.
bool TcpClient::begin(ClientCall& call, const rpc::CallHeader& header, std::span<std::byte> record,
                      std::size_t arguments_at) noexcept {
  if (!std::exchange(restored_, true))
    gateway_.server().compared().restore(*call.binding, call.procedure, record.subspan(arguments_at));
  // The stream buffer of short records is not registered.
  const bool in_memory = stream_.in_memory();
  const auto submission = rdma_server::submit_call(
      call,
      {.header = header,
       .message = record,
       .arguments_at = arguments_at,
       .lkey = in_memory ? std::optional(gateway_.server().record_lkey()) : std::nullopt},
      gateway_.server(), buffers_);
  if (submission == rdma_server::Submission::NoMemory) return false;
  if (submission == rdma_server::Submission::Refused) return lose(call), true;
  if (submission == rdma_server::Submission::Submitted) return true;
  gateway_.count(ReverseGateway::Counter::reduced_calls);
  if (in_memory) call.arguments = {stream_.take_memory(), true};
  return true;
}

/// Releases the memory of a handled record, unless the record had none or the call has taken it over.
void TcpClient::release_record() noexcept {
  PoolBuffer buffer{stream_.take_memory(), true};
  buffers_.release(buffer);
}

// --- Replies

void TcpClient::on_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept {
  SLUICE_INVARIANT_DEBUG(server_ != nullptr && call.server == server_, gateway_state);
  buffers_.release(call.arguments);
  if (!is_connected()) return free(call);
  gateway_.area().server_ns.record(gateway_.now_ns() - call.begun_ns);
  if (rdma_server::is_answer(reply.status())) server_->note_answer();
  switch (reply.status()) {
    case rpcrdma::CallStatus::Ok:
      break;
    case rpcrdma::CallStatus::ChunkError:
    case rpcrdma::CallStatus::Refused:
      return answer_refused(call);
    case rpcrdma::CallStatus::TimedOut:
      gateway_.count(ReverseGateway::Counter::timeouts);
      [[fallthrough]];
    default:
      return lose(call);
  }
  const std::span<std::byte> message = buffers_.keep_message(call, reply);
  if (!rdma_server::read_reply(call, reply, message, gateway_.server())) return lose(call);
  rdma_server::assemble_reply(call, message);
  gateway_.count(ReverseGateway::Counter::replies);
  if (call.piece_count > 1) gateway_.count(ReverseGateway::Counter::placed_replies);
  make_ready(call);
}

/// Drops a call that cannot get a reply, and disconnects its client, which retransmits the call over another
/// connection. An error reply would look like a reply of the server.
void TcpClient::lose(ClientCall& call) noexcept {
  gateway_.count(ReverseGateway::Counter::calls_lost);
  free(call);
  disconnect_soon();
}

/// Answers a call that the server itself has refused permanently with SYSTEM_ERR (V1-027).
void TcpClient::answer_refused(ClientCall& call) noexcept {
  gateway_.count(ReverseGateway::Counter::failures);
  xdr::Writer writer(*call.small);
  rpc::encode_accepted(writer, static_cast<rpc::Xid>(call.xid), {}, rpc::AcceptStat::SystemErr);
  answer_small(call, writer.position());
}

void TcpClient::answer_small(ClientCall& call, std::size_t bytes) noexcept {
  call.total_bytes = static_cast<std::uint32_t>(bytes);
  call.pieces[0] = std::span(*call.small).subspan(xdr::kUnit, bytes - xdr::kUnit);
  call.piece_count = 1;
  make_ready(call);
}

void TcpClient::make_ready(ClientCall& call) noexcept {
  SLUICE_INVARIANT_DEBUG(call.piece_count > 0 && call.piece_count <= call.pieces.size(), buffer_bounds);
  call.transition(ClientCall::State::Ready);
  ready_.push_back(call);
  pump();
}

void TcpClient::pump() noexcept {
  if (server_calls_.pump(queue_)) schedule_flush();
  while (ClientCall* const call = ready_.front()) {
    const bool copied = call->total_bytes <= tcp::kMaxCopiedBytes;
    if (!queue_.room_for(xdr::kUnit + (copied ? call->total_bytes : xdr::kUnit),
                         copied ? 0 : call->piece_count))
      return;
    ready_.pop_front();
    SLUICE_INVARIANT_DEBUG(call->state == ClientCall::State::Ready, gateway_state);
    queue_.copy(tcp::record_head(call->total_bytes, call->xid));
    const auto pieces = std::span(call->pieces).first(call->piece_count);
    for (const auto piece : pieces) {
      if (copied)
        queue_.copy(piece);
      else
        queue_.refer(piece, call);
    }
    call->transition(ClientCall::State::Sending);
    call->pieces_left = call->piece_count;
    schedule_flush();
    if (copied) free(*call);
  }
}

void TcpClient::free(ClientCall& call) noexcept {
  SLUICE_INVARIANT_DEBUG(server_ == call.server && !call.link.linked(), list_membership);
  buffers_.release(call.arguments);
  buffers_.release(call.reply);
  server_->free(call);
}

}  // namespace sluice::tcp_clients
