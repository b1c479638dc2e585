// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ingress/tcp_client.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/ingress/call_translation.h"
#include "dataplane/ingress/ingress.h"
#include "dataplane/ulb/bindings.h"

namespace sluice::ingress {
namespace {

/// Room for the transport header of a call that is sent inline.
constexpr std::uint32_t kHeaderRoom = 128;
constexpr std::uint32_t kWindowsPerCall = 2;
constexpr std::uint32_t kLongBuffers = 4;
/// For programs without eligible items, and for calls whose items only the server can decode (V1-175).
constexpr service::Binding kNoBinding{};

rpcrdma::RequesterConfig requester_config(const IngressConfig& config) {
  return {.requests = config.calls,
          .inline_bytes = config.inline_bytes,
          .credits_requested = config.calls,
          .windows = kWindowsPerCall * config.calls,
          .long_buffers = kLongBuffers,
          .long_buffer_bytes = tcp::kMaxRecordBytes,
          .keep_xids = true};
}

}  // namespace

std::uint64_t client_bytes(std::uint32_t calls) noexcept {
  const std::uint64_t requests = std::uint64_t{2} * rpcrdma::RequesterConfig{}.inline_bytes * calls;
  return requests + kLongBuffers * std::uint64_t{tcp::kMaxRecordBytes} +
         calls * std::uint64_t{kSmallReplyBytes} + tcp::kStreamBytes + tcp::kSendRingBytes;
}

TcpClient::TcpClient(Ingress& ingress, rpcrdma::Engine& engine)
    : ingress_(ingress),
      requester_(engine.requester_context(), engine.device(), requester_config(ingress.config())),
      stream_bytes_(new std::byte[tcp::kStreamBytes]),
      stream_({stream_bytes_.get(), tcp::kStreamBytes}, tcp::kMaxRecordBytes),
      calls_(ingress.config().calls),
      small_replies_(new std::array<std::byte, kSmallReplyBytes>[ingress.config().calls]),
      xids_(ingress.config().calls) {
  for (std::uint32_t i = 0; i < calls_.size(); ++i) {
    calls_[i].client = this;
    calls_[i].index = i;
    calls_[i].small = &small_replies_[i];
    free_.push_back(calls_[i]);
  }
}

TcpClient::~TcpClient() {
  if (socket_ >= 0) ::close(socket_);
}

// --- The client's connection

void TcpClient::open(int socket) noexcept {
  socket_ = socket;
  state_ = State::Open;
  moved_ns_ = ingress_.now_ns();
  dial_ns_ = 0;
  dial_after_ns_ = kFirstDialNs;
  dial();
  handle_records();
}

void TcpClient::disconnect() noexcept {
  if (state_ != State::Open) return;
  state_ = State::Closing;
  ingress_.count(Ingress::Counter::clients_ended);
  ::shutdown(socket_, SHUT_RDWR);  // completes the io_uring operations in flight
  ingress_.count(Ingress::Counter::callbacks_refused, server_calls_.refuse_all());
  requester_.cancel_all();
  if (connection_ != nullptr && requester_.attached()) ingress_.dialer().hang_up(*connection_);
}

/// Called in each tick while closing; finishes once nothing is in flight any more.
void TcpClient::finish_closing() noexcept {
  if (receiving_ || sending_) return;
  if (socket_ >= 0) {
    ::close(std::exchange(socket_, -1));
    queue_.clear();
    for (ClientCall& call : calls_)
      if (call.state == ClientCall::State::Sending) free(call);
    while (ClientCall* const call = ready_.pop_front()) free(*call);
    release_record();
    stream_.reset();
  }
  if (in_use_ > 0 || requester_.attached()) return;
  if (connection_ != nullptr) ingress_.unbind(*std::exchange(connection_, nullptr), *this);
  was_connected_ = false;
  state_ = State::Free;
}

void TcpClient::on_received(int result) noexcept {
  receiving_ = false;
  if (state_ != State::Open) return;
  if (result <= 0) return disconnect();
  moved_ns_ = ingress_.now_ns();
  ingress_.count(Ingress::Counter::received_bytes, static_cast<std::uint64_t>(result));
  stream_.received(static_cast<std::size_t>(result));
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
  flush();
}

void TcpClient::flush() noexcept {
  flush_scheduled_ = false;
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
  if (!std::exchange(waiting_, true)) ingress_.schedule_resume(*this);
}

void TcpClient::resume() noexcept {
  waiting_ = false;
  if (state_ == State::Open && !receiving_) handle_records();
}

void TcpClient::handle_records() noexcept {
  while (state_ == State::Open) {
    switch (stream_.next()) {
      case tcp::RecordStream::Step::Record:
        if (!on_record(stream_.record())) {
          stream_.keep();
          return wait_for_release();
        }
        release_record();
        break;
      case tcp::RecordStream::Step::NeedBytes: {
        const auto room = stream_.room();
        receiving_ = true;
        return ingress_.uring().receive(this, socket_, room.data(), room.size());
      }
      case tcp::RecordStream::Step::NeedMemory: {
        const PoolBuffer buffer = acquire_buffer(tcp::kMaxRecordBytes);
        if (buffer.address == nullptr) return wait_for_release();
        stream_.lend(buffer.address);
        break;
      }
      case tcp::RecordStream::Step::Skipped:
        ingress_.count(Ingress::Counter::long_records);
        release_record();
        if (ClientCall* const call = take_call(xdr::load_u32(stream_.record().data())))
          fail(*call);
        else
          disconnect();  // no free call to answer with
        break;
      case tcp::RecordStream::Step::Broken:
        ingress_.count(Ingress::Counter::bad_records);
        return disconnect();
    }
  }
}

// --- The connection to the server

void TcpClient::dial() noexcept {
  rpcrdma::Connection* const connection = ingress_.dialer().dial(requester_, ingress_.callee());
  dial_ns_ = ingress_.now_ns() + dial_after_ns_;
  dial_after_ns_ = std::min(2 * dial_after_ns_, kLastDialNs);
  if (connection == nullptr) return ingress_.count(Ingress::Counter::dials_failed);
  ingress_.count(Ingress::Counter::dials);
  connection_ = connection;
  ingress_.bind(*connection, *this);
}

void TcpClient::tick(std::uint64_t now_ns) noexcept {
  if (state_ == State::Closing) return finish_closing();
  if (state_ != State::Open) return;
  const bool waits_for_bytes = stream_.in_memory() && (receiving_ || in_use_ == 0);
  if ((sending_ || waits_for_bytes) && now_ns - moved_ns_ > kStuckNs) {
    ingress_.count(Ingress::Counter::clients_stuck);
    return disconnect();
  }
  requester_.expire(now_ns);
  ingress_.count(Ingress::Counter::callbacks_refused, server_calls_.expire(now_ns));
  if (requester_.connected()) {
    was_connected_ = true;
    dial_after_ns_ = kFirstDialNs;
  }
  if (requester_.attached()) return;
  if (connection_ != nullptr) {
    ingress_.unbind(*std::exchange(connection_, nullptr), *this);
    ingress_.count(Ingress::Counter::disconnects);
  }
  // A connection that the server has closed is reopened by the next call.
  if (now_ns >= dial_ns_ && (in_use_ > 0 || !was_connected_)) dial();
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

bool TcpClient::is_outstanding(std::uint32_t xid) const noexcept {
  for (std::size_t i = 0; i < xids_.size(); ++i)
    if (xids_[i] == xid && calls_[i].state == ClientCall::State::Outstanding) return true;
  return false;
}

ClientCall* TcpClient::take_call(std::uint32_t xid) noexcept {
  ClientCall* const call = free_.pop_front();
  if (call == nullptr) return nullptr;
  ++in_use_;
  call->state = ClientCall::State::Outstanding;
  call->xid = xids_[call->index] = xid;
  call->submitting = call->refused = false;
  call->all_chunks_bytes = call->chunk_count = 0;
  call->begun_ns = ingress_.now_ns();
  return call;
}

/// False: no free call or memory; pass the record again later.
bool TcpClient::on_call(std::span<std::byte> record) noexcept {
  xdr::Reader reader(record);
  rpc::CallHeader header;
  const rpc::CallDecode decoded = rpc::decode_call(reader, header);
  if (decoded == rpc::CallDecode::Truncated || decoded == rpc::CallDecode::NotACall) {
    ingress_.count(Ingress::Counter::bad_records);
    return disconnect(), true;
  }
  const auto xid = static_cast<std::uint32_t>(header.xid);
  if (is_outstanding(xid)) return ingress_.count(Ingress::Counter::duplicate_calls), true;
  ClientCall* const call = requester_.free_requests() > 0 ? take_call(xid) : nullptr;
  if (call == nullptr) return count_wait(Ingress::Counter::waits_call);
  if (decoded != rpc::CallDecode::Ok) return answer_bad_call(*call, decoded, header.xid), true;

  call->procedure = header.procedure;
  call->binding =
      rpc::is_wrapped(header.credential) ? &kNoBinding : ulb::find_binding(header.program, header.version);
  if (call->binding == nullptr) call->binding = &kNoBinding;
  if (begin(*call, header, record, record.size() - reader.remaining())) return true;
  free(*call);
  return count_wait(Ingress::Counter::waits_memory);
}

bool TcpClient::count_wait(segment::IngressCounter why) noexcept {
  if (!waiting_) ingress_.count(why);
  return false;
}

void TcpClient::answer_bad_call(ClientCall& call, rpc::CallDecode defect, rpc::Xid xid) noexcept {
  ingress_.count(Ingress::Counter::bad_calls);
  const bool bad_credential = defect == rpc::CallDecode::BadCred;
  xdr::Writer writer(*call.small);
  if (defect == rpc::CallDecode::RpcMismatch)
    rpc::encode_rpc_mismatch(writer, xid);
  else
    rpc::encode_auth_error(writer, xid, bad_credential ? rpc::AuthStat::BadCred : rpc::AuthStat::BadVerf);
  answer_small(call, writer.position());
}

/// Submits the call to the requester. False: no memory now.
bool TcpClient::begin(ClientCall& call, const rpc::CallHeader& header, std::span<std::byte> record,
                      std::size_t arguments_at) noexcept {
  const bool in_memory = stream_.in_memory();
  const bool is_long = record.size() + kHeaderRoom > ingress_.config().inline_bytes;
  const bool to_reduce = is_long && call.binding->argument_items != nullptr;
  const std::uint32_t max_reply = plan_reply(call, header, record.subspan(arguments_at));
  const std::uint32_t reply_bytes = call.all_chunks_bytes + max_reply;
  if (reply_bytes > kSmallReplyBytes) {
    call.reply = acquire_buffer(reply_bytes);
    if (call.reply.address == nullptr) return false;
  }
  if (to_reduce && !in_memory) {  // the stream buffer of short records is not registered
    call.call = acquire_buffer(record.size());
    if (call.call.address == nullptr) return false;
    std::memcpy(call.call.address, record.data(), record.size());
    record = {call.call.address, record.size()};
  }

  ReducedCall reduced;
  reduced.payload = record;
  if (to_reduce)
    reduce_call(call, record, arguments_at, in_memory ? ingress_.record_lkey() : ingress_.lkey(call.call),
                ingress_.scratch(), reduced);
  OfferedChunks chunks;
  const std::uint64_t timeout_ns = ingress_.config().call_timeout_ns;
  if (!submit(call, {.payload = reduced.payload,
                     .reads = std::span(reduced.items).first(reduced.count),
                     .writes = offer_chunks(call, ingress_.lkey(call.reply), chunks),
                     .max_reply_bytes = max_reply,
                     .deadline_ns = timeout_ns == 0 ? 0 : call.begun_ns + timeout_ns,
                     .completion = &completed,
                     .context = &call}))
    return false;
  if (reduced.count > 0) ingress_.count(Ingress::Counter::reduced_calls);
  if (to_reduce && in_memory) call.call = {stream_.take_memory(), true};
  if (call.refused) {
    release_buffer(call.call);
    fail(call);
  }
  return true;
}

bool TcpClient::submit(ClientCall& call, const rpcrdma::Request& request) noexcept {
  call.submitting = true;
  const bool submitted = requester_.submit(request).has_value();
  call.submitting = false;
  if (submitted) ingress_.count(Ingress::Counter::calls);
  return submitted;
}

/// Returns the memory of a handled record, unless it had none or the call took it over.
void TcpClient::release_record() noexcept {
  PoolBuffer buffer{stream_.take_memory(), true};
  release_buffer(buffer);
}

PoolBuffer TcpClient::acquire_buffer(std::size_t bytes) noexcept {
  PoolBuffer buffer = ingress_.acquire_buffer(bytes);
  if (!buffer.is_record || buffer.address == nullptr) return buffer;
  const std::uint32_t share = std::max(ingress_.config().record_buffers / kShareOfRecords, 2u);
  if (records_held_ < share) return ++records_held_, buffer;
  return ingress_.release_buffer(buffer), PoolBuffer{};
}

void TcpClient::release_buffer(PoolBuffer& buffer) noexcept {
  if (buffer.address == nullptr) return;
  if (buffer.is_record) --records_held_;
  ingress_.release_buffer(buffer);
}

// --- Replies

void TcpClient::completed(void* context, const rpcrdma::Reply& reply) noexcept {
  auto& call = *static_cast<ClientCall*>(context);
  if (call.submitting)
    call.refused = true;
  else
    call.client->on_reply(call, reply);
}

void TcpClient::on_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept {
  release_buffer(call.call);
  if (state_ != State::Open) return free(call);
  ingress_.area().server_ns.record(ingress_.now_ns() - call.begun_ns);
  if (reply.status() == rpcrdma::CallStatus::TimedOut)
    on_timeout(call);
  else
    note_answer();
  if (reply.status() != rpcrdma::CallStatus::Ok ||
      !assemble_reply(call, reply, buffer_for_reply(call, reply.message().size())))
    return fail(call);
  ingress_.count(Ingress::Counter::replies);
  if (call.piece_count > 1) ingress_.count(Ingress::Counter::placed_replies);
  make_ready(call);
}

/// Behind the call's Write chunks, or in its own buffer if it has none and the reply is short.
std::span<std::byte> TcpClient::buffer_for_reply(ClientCall& call, std::size_t bytes) noexcept {
  if (bytes > kSmallReplyBytes && call.reply.address == nullptr) call.reply = acquire_buffer(bytes);
  if (call.reply.address == nullptr) return *call.small;
  const std::size_t lent = call.reply.is_record ? tcp::kMaxRecordBytes : tcp::kStreamBytes;
  return {call.reply.address + call.all_chunks_bytes, lent - call.all_chunks_bytes};
}

void TcpClient::note_answer() noexcept {
  answered_ns_ = ingress_.now_ns();
  was_connected_ = true;
}

/// Calls that timed out keep their credits (V1-056): if the server answers nothing at all, only a new
/// connection has free credits.
void TcpClient::on_timeout(const ClientCall& call) noexcept {
  ingress_.count(Ingress::Counter::timeouts);
  if (answered_ns_ < call.begun_ns && requester_.attached()) ingress_.dialer().hang_up(*connection_);
}

void TcpClient::fail(ClientCall& call) noexcept {
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
  call.state = ClientCall::State::Ready;
  ready_.push_back(call);
  pump();
}

void TcpClient::pump() noexcept {
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
    call->state = ClientCall::State::Sending;
    call->pieces_left = call->piece_count;
    schedule_flush();
    if (copied) free(*call);
  }
}

void TcpClient::free(ClientCall& call) noexcept {
  release_buffer(call.call);
  release_buffer(call.reply);
  call.state = ClientCall::State::Free;
  free_.push_front(call);
  --in_use_;
  ingress_.note_release();
}

// --- Calls of the server

void TcpClient::on_server_call(service::Call& call) noexcept {
  if (state_ != State::Open || !server_calls_.start(call, queue_, ingress_.now_ns())) {
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
    case ServerCalls::Answer::Refused:
      ingress_.count(Ingress::Counter::callbacks_refused);
      break;
    case ServerCalls::Answer::Unknown:
      ingress_.count(Ingress::Counter::bad_records);
      break;
  }
}

void TcpClient::on_server_gone() noexcept {
  ingress_.count(Ingress::Counter::callbacks_refused, server_calls_.refuse_all());
}

}  // namespace sluice::ingress
