// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_clients/tcp_client.h"

#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "dataplane/gateway/rdma_server/call_translation.h"
#include "dataplane/gateway/tcp_clients/ingress.h"
#include "dataplane/ulb/bindings.h"

namespace sluice::tcp_clients {
namespace {

/// Room for the transport header of a call that is sent inline.
constexpr std::uint32_t kHeaderRoom = 128;
/// RPC_MISMATCH and AUTH_ERROR.
constexpr std::size_t kMaxDenialBytes = 64;
/// For programs without eligible items, and for calls whose items only the server can decode (V1-175).
constexpr service::Binding kNoBinding{};

}  // namespace

TcpClient::TcpClient(Ingress& ingress)
    : ingress_(ingress),
      buffers_(ingress.server()),
      stream_bytes_(FixedArray<std::byte>::for_overwrite(tcp::kStreamBytes)),
      stream_({stream_bytes_.data(), tcp::kStreamBytes}, tcp::kMaxRecordBytes),
      receiver_(ingress.uring(), this) {}

TcpClient::~TcpClient() {
  if (socket_ >= 0) ::close(socket_);
}

// --- The client's connection

void TcpClient::open(int socket, Host& host) noexcept {
  socket_ = socket;
  host_ = &host;
  state_ = State::Open;
  disconnecting_ = gone_ = draining_ = restored_ = false;
  record_since_ns_ = half_closed_ns_ = 0;
  awaiting_end_ = true;
  ingress_.uring().await_end(this, socket_);
  opened_ns_ = moved_ns_ = ingress_.now_ns();
  handle_records();
}

void TcpClient::disconnect() noexcept {
  if (state_ != State::Open) return;
  state_ = State::Closing;
  receiver_.stop();
  ingress_.count(Ingress::Counter::clients_ended);
  ::shutdown(socket_, SHUT_RDWR);  // completes the io_uring operations in flight
  ingress_.server().connections().forget(*this);
  if (server_ != nullptr) server_->cancel_calls();
  ingress_.count(Ingress::Counter::callbacks_refused, server_calls_.drop_all());
}

/// For what is called by the requester, which is busy with its calls then: in the next flush().
void TcpClient::disconnect_soon() noexcept {
  if (state_ != State::Open || std::exchange(disconnecting_, true)) return;
  ingress_.count(Ingress::Counter::clients_reset);
  schedule_flush();
}

/// Called in each tick while closing; finishes once nothing is in flight any more.
void TcpClient::finish_closing() noexcept {
  if (receiver_.busy() || sending_ || awaiting_end_) return;
  if (socket_ >= 0) {
    ::close(std::exchange(socket_, -1));
    queue_.clear();
    while (ClientCall* const call = ready_.pop_front()) free(*call);
    if (server_ != nullptr)
      for (ClientCall& call : server_->calls())
        if (call.state == ClientCall::State::Sending) free(call);
    release_record();
    stream_.reset();
  }
  if (calls_in_use() > 0) return;
  if (server_ != nullptr) ingress_.server().connections().give_back(*std::exchange(server_, nullptr));
  state_ = State::Free;
  ingress_.on_free(*this);
}

void TcpClient::on_received(const tcp::Uring::Completion& end) noexcept {
  take(receiver_.on_received(end));
}

void TcpClient::on_received_again(const tcp::Uring::Completion& end) noexcept {
  take(receiver_.on_received_again(end));
}

void TcpClient::take(std::optional<int> received) noexcept {
  if (state_ != State::Open || !received) return;
  if (*received == 0 && has_replies()) {
    if (half_closed_ns_ == 0) half_closed_ns_ = ingress_.now_ns();
    return;
  }
  if (*received <= 0) return disconnect();
  moved_ns_ = ingress_.now_ns();
  ingress_.count(Ingress::Counter::received_bytes, static_cast<std::uint64_t>(*received));
  stream_.received(static_cast<std::size_t>(*received));
  handle_records();
}

void TcpClient::on_sent(int result) noexcept {
  sending_ = false;
  if (state_ != State::Open) return;
  if (result <= 0) return disconnect();
  moved_ns_ = ingress_.now_ns();
  ingress_.count(Ingress::Counter::sent_bytes, static_cast<std::uint64_t>(result));
  queue_.sent(static_cast<std::size_t>(result), [this](void* owner) {
    auto& call = *static_cast<ClientCall*>(owner);
    if (--call.pieces_left == 0) free(call);
  });
  pump();
  send_queued();
}

/// Notes an end that receiving does not show while a call waits. tick() acts on it.
void TcpClient::on_ended(int result) noexcept {
  awaiting_end_ = false;
  gone_ = (result & (POLLERR | POLLHUP)) != 0;
  if (half_closed_ns_ == 0) half_closed_ns_ = ingress_.now_ns();
}

void TcpClient::flush() noexcept {
  flush_scheduled_ = false;
  if (disconnecting_) return disconnect();
  send_queued();
}

void TcpClient::send_queued() noexcept {
  if (state_ != State::Open || sending_ || queue_.empty()) return;
  const auto vectors = queue_.gather();
  message_.msg_iov = vectors.data();
  message_.msg_iovlen = vectors.size();
  sending_ = true;
  ingress_.uring().send(this, socket_, &message_);
}

void TcpClient::schedule_flush() noexcept {
  if (!std::exchange(flush_scheduled_, true)) ingress_.schedule_flush(*this);
}

void TcpClient::wait_for_release() noexcept {
  record_since_ns_ = 0;  // what is missing is not the client's to send
  if (!wanted_link.linked()) ingress_.schedule_resume(*this);
}

void TcpClient::resume() noexcept {
  if (state_ == State::Open && !receiver_.asked()) handle_records();
}

void TcpClient::handle_records() noexcept {
  while (state_ == State::Open && !disconnecting_ && !draining_) {
    switch (stream_.next()) {
      case tcp::RecordStream::Step::Record:
        record_since_ns_ = 0;
        if (!on_record(stream_.record())) {
          stream_.keep();
          return wait_for_release();
        }
        restored_ = false;
        release_record();
        break;
      case tcp::RecordStream::Step::NeedBytes:
        if (record_since_ns_ == 0 && stream_.in_record()) record_since_ns_ = moved_ns_;
        return receiver_.receive(socket_, stream_.room());
      case tcp::RecordStream::Step::NeedMemory: {
        const PoolBuffer buffer = buffers_.acquire(tcp::kMaxRecordBytes);
        if (buffer.address == nullptr) return wait_for_release();
        stream_.lend(buffer.address);
        break;
      }
      case tcp::RecordStream::Step::Skipped:
        ingress_.count(Ingress::Counter::long_records);
        return disconnect_soon();
      case tcp::RecordStream::Step::Broken:
        ingress_.count(Ingress::Counter::bad_records);
        return disconnect();
    }
  }
}

// --- The connection to the server

void TcpClient::on_lent(ServerConnection& connection) noexcept {
  server_ = &connection;
  resume();
}

bool TcpClient::on_taken() noexcept {
  if (!server_calls_.empty()) return false;
  server_ = nullptr;
  return true;
}

std::uint32_t TcpClient::calls_in_use() const noexcept {
  return server_ == nullptr ? 0 : server_->in_use();
}

bool TcpClient::has_replies() const noexcept {
  return sending_ || !queue_.empty() || calls_in_use() > 0;
}

bool TcpClient::is_idle() const noexcept {
  return state_ == State::Open && receiver_.asked() && !stream_.in_record() && !has_replies() &&
         !is_called_back();
}

/// Returns true if a client that has shut its sending side gets no further reply.
bool TcpClient::is_finished(std::uint64_t now_ns) const noexcept {
  if (receiver_.asked()) return false;  // what the client sent last may be in the socket
  const bool unsent = wanted_link.linked() || waiting_link.linked();
  if (gone_ || (!unsent && !has_replies())) return true;
  return now_ns - half_closed_ns_ > (unsent ? kUnsentNs : kHalfClosedNs);
}

bool TcpClient::is_overdue(std::uint64_t now_ns) const noexcept {
  const bool waits_for_memory = stream_.in_memory() && calls_in_use() == 0 && !wanted_link.linked();
  const bool waits_for_bytes = receiver_.asked() && record_since_ns_ != 0;
  if (waits_for_bytes && now_ns - record_since_ns_ > kRecordNs) return true;
  return (sending_ || waits_for_bytes || waits_for_memory) && now_ns - moved_ns_ > kStuckNs;
}

void TcpClient::tick(std::uint64_t now_ns) noexcept {
  if (state_ == State::Closing) return finish_closing();
  if (state_ != State::Open) return;
  if (half_closed_ns_ != 0 && is_finished(now_ns)) return disconnect();
  if (draining_ && !has_replies()) return disconnect();
  if (is_overdue(now_ns)) {
    ingress_.count(Ingress::Counter::clients_stuck);
    disconnect();
  }
}

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
  ingress_.count(Ingress::Counter::bad_records);
  return disconnect(), true;
}

/// False: no connection, free call or memory; pass the record again later.
bool TcpClient::on_call(std::span<std::byte> record) noexcept {
  xdr::Reader reader(record);
  rpc::CallHeader header;
  const rpc::CallDecode decoded = rpc::decode_call(reader, header);
  if (decoded == rpc::CallDecode::Truncated || decoded == rpc::CallDecode::NotACall) {
    ingress_.count(Ingress::Counter::bad_records);
    return disconnect(), true;
  }
  if (decoded != rpc::CallDecode::Ok) return answer_bad_call(decoded, header.xid);
  if (server_ == nullptr) server_ = ingress_.server().connections().take(*this);
  if (server_ == nullptr || server_->yields()) return count_wait(Ingress::Counter::waits_connection);
  const auto xid = static_cast<std::uint32_t>(header.xid);
  if (server_->note_repetition(xid)) return ingress_.count(Ingress::Counter::duplicate_calls), true;
  ClientCall* const call = server_->take_call(xid);
  if (call == nullptr) return count_wait(Ingress::Counter::waits_call);

  call->program = header.program;
  call->version = header.version;
  call->procedure = header.procedure;
  call->binding =
      rpc::is_wrapped(header.credential) ? &kNoBinding : ulb::find_binding(header.program, header.version);
  if (call->binding == nullptr) call->binding = &kNoBinding;
  if (begin(*call, header, record, record.size() - reader.remaining())) return true;
  free(*call);
  return count_wait(Ingress::Counter::waits_memory);
}

bool TcpClient::count_wait(segment::IngressCounter why) noexcept {
  if (!waiting_link.linked()) ingress_.count(why);
  return false;
}

/// False: no room in the queue.
bool TcpClient::answer_bad_call(rpc::CallDecode defect, rpc::Xid xid) noexcept {
  std::array<std::byte, kMaxDenialBytes> message;
  xdr::Writer writer(message);
  if (defect == rpc::CallDecode::RpcMismatch)
    rpc::encode_rpc_mismatch(writer, xid);
  else
    rpc::encode_auth_error(
        writer, xid, defect == rpc::CallDecode::BadCred ? rpc::AuthStat::BadCred : rpc::AuthStat::BadVerf);
  if (!queue_.room_for(xdr::kUnit + writer.position(), 0)) return count_wait(Ingress::Counter::waits_call);
  ingress_.count(Ingress::Counter::bad_calls);
  queue_.copy(tcp::record_head(writer.position(), static_cast<std::uint32_t>(xid)));
  queue_.copy(std::span(message).subspan(xdr::kUnit, writer.position() - xdr::kUnit));
  schedule_flush();
  return true;
}

/// Submits the call to the requester. False: no memory now.
bool TcpClient::begin(ClientCall& call, const rpc::CallHeader& header, std::span<std::byte> record,
                      std::size_t arguments_at) noexcept {
  const bool in_memory = stream_.in_memory();
  const bool is_long = record.size() + kHeaderRoom > ingress_.config().inline_bytes;
  const bool to_reduce = is_long && call.binding->argument_items != nullptr;
  const auto arguments = record.subspan(arguments_at);
  if (!std::exchange(restored_, true))
    ingress_.server().compared().restore(*call.binding, call.procedure, arguments);
  call.tells_withheld = call.binding->withhold(call.procedure, arguments, ingress_.config().withheld);
  const std::uint32_t max_reply = plan_reply(call, header, arguments);
  // A longer reply without Write chunks stays in the memory of its Reply chunk.
  const bool to_be_copied = max_reply > rdma_server::kSmallReplyBytes && max_reply <= tcp::kStreamBytes;
  if (call.all_chunks_bytes > 0 || to_be_copied) {
    call.reply = buffers_.acquire(call.all_chunks_bytes + max_reply);
    if (call.reply.address == nullptr) return false;
  }
  if (to_reduce && !in_memory) {  // the stream buffer of short records is not registered
    call.arguments = buffers_.acquire(record.size());
    if (call.arguments.address == nullptr) return false;
    std::memcpy(call.arguments.address, record.data(), record.size());
    record = {call.arguments.address, record.size()};
  }

  rdma_server::ReducedCall reduced;
  reduced.payload = record;
  if (to_reduce)
    reduce_call(call, record, arguments_at,
                in_memory ? ingress_.server().record_lkey() : ingress_.server().lkey(call.arguments),
                ingress_.server().scratch(), reduced);
  rdma_server::OfferedChunks chunks;
  const std::uint64_t timeout_ns = ingress_.config().call_timeout_ns;
  if (!server_->submit(call, {.payload = reduced.payload,
                              .reads = std::span(reduced.items).first(reduced.count),
                              .writes = offer_chunks(call, ingress_.server().lkey(call.reply), chunks),
                              .max_reply_bytes = max_reply,
                              .send_once = header.credential.flavor == rpc::AuthFlavor::RpcSecGss,
                              .deadline_ns = timeout_ns == 0 ? 0 : call.begun_ns + timeout_ns}))
    return false;
  if (reduced.count > 0) ingress_.count(Ingress::Counter::reduced_calls);
  if (to_reduce && in_memory) call.arguments = {stream_.take_memory(), true};
  if (call.refused) lose(call);
  return true;
}

/// Returns the memory of a handled record, unless it had none or the call took it over.
void TcpClient::release_record() noexcept {
  PoolBuffer buffer{stream_.take_memory(), true};
  buffers_.release(buffer);
}

// --- Replies

void TcpClient::on_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept {
  buffers_.release(call.arguments);
  if (state_ != State::Open) return free(call);
  ingress_.area().server_ns.record(ingress_.now_ns() - call.begun_ns);
  if (rdma_server::is_answer(reply.status())) server_->note_answer();
  switch (reply.status()) {
    case rpcrdma::CallStatus::Ok:
      break;
    case rpcrdma::CallStatus::ChunkError:
    case rpcrdma::CallStatus::Refused:
      return answer_refused(call);
    case rpcrdma::CallStatus::TimedOut:
      ingress_.count(Ingress::Counter::timeouts);
      [[fallthrough]];
    default:
      return lose(call);
  }
  const std::span<std::byte> message = buffers_.keep_message(call, reply);
  if (!rdma_server::read_reply(call, reply, message, ingress_.server())) return lose(call);
  rdma_server::assemble_reply(call, message);
  ingress_.count(Ingress::Counter::replies);
  if (call.piece_count > 1) ingress_.count(Ingress::Counter::placed_replies);
  make_ready(call);
}

/// It can get no reply any more, and an error would be taken for the server's: its client sends it again over
/// another connection.
void TcpClient::lose(ClientCall& call) noexcept {
  ingress_.count(Ingress::Counter::calls_lost);
  free(call);
  disconnect_soon();
}

/// The server itself has refused the call, for good (V1-027).
void TcpClient::answer_refused(ClientCall& call) noexcept {
  ingress_.count(Ingress::Counter::failures);
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
  buffers_.release(call.arguments);
  buffers_.release(call.reply);
  server_->free(call);
}

// --- Calls of the server

void TcpClient::on_server_call(service::Call& call) noexcept {
  if (state_ != State::Open || draining_ || !server_calls_.start(call, queue_)) {
    ingress_.count(Ingress::Counter::callbacks_refused);
    return call.complete(rpc::AcceptStat::SystemErr);
  }
  ingress_.count(Ingress::Counter::callbacks);
  schedule_flush();
}

void TcpClient::on_client_reply(std::span<const std::byte> record) noexcept {
  switch (server_calls_.on_reply(record)) {
    case ServerCalls::Answer::Completed:
      break;
    case ServerCalls::Answer::TooLong:
      ingress_.count(Ingress::Counter::callbacks_refused);
      break;
    case ServerCalls::Answer::Unknown:
      ingress_.count(Ingress::Counter::bad_records);
      break;
  }
}

/// Disconnects a half-closed client: its calls would be sent to the server again, and it may have repeated them itself.
void TcpClient::on_server_gone() noexcept {
  if (half_closed_ns_ != 0) disconnect_soon();
  ingress_.count(Ingress::Counter::callbacks_refused, server_calls_.drop_all());
}

}  // namespace sluice::tcp_clients
