// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ingress/tcp_client.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/ingress/ingress.h"
#include "dataplane/ulb/bindings.h"

namespace sluice::ingress {
namespace {

/// Room for the transport header in front of a call that goes inline.
constexpr std::uint32_t kHeaderRoom = 128;
/// A result that is smaller comes inline, or in the Reply chunk with the rest.
constexpr std::uint32_t kMinPlacedBytes = 1024;
constexpr std::uint32_t kWindowsPerCall = 2;
constexpr std::uint32_t kLongBuffers = 4;

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

/// What is taken out of a call.
struct TcpClient::Reduction {
  std::array<rdma::Sge, rpcrdma::kMaxReadItems> pieces;
  std::array<rpcrdma::ReadItem, rpcrdma::kMaxReadItems> items;
  std::size_t count = 0;
  std::span<const std::byte> payload;  ///< the rest
};

TcpClient::TcpClient(Ingress& ingress, rpcrdma::Engine& engine)
    : ingress_(ingress),
      requester_(engine.shared(), engine.device(), requester_config(ingress.config())),
      stream_bytes_(new std::byte[tcp::kStreamBytes]),
      stream_({stream_bytes_.get(), tcp::kStreamBytes}, tcp::kMaxRecordBytes),
      exchanges_(ingress.config().calls),
      small_replies_(new std::array<std::byte, kSmallReplyBytes>[ingress.config().calls]),
      xids_(ingress.config().calls) {
  for (std::uint32_t i = 0; i < exchanges_.size(); ++i) {
    exchanges_[i].client = this;
    exchanges_[i].index = i;
    exchanges_[i].small = &small_replies_[i];
    free_.push_back(exchanges_[i]);
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

void TcpClient::lose() noexcept {
  if (state_ != State::Open) return;
  state_ = State::Closing;
  ingress_.count(Ingress::Counter::clients_ended);
  ::shutdown(socket_, SHUT_RDWR);  // ends what io_uring has of it
  for (CallBack& call_back : call_backs_)
    if (call_back.call != nullptr) refuse(call_back);
  requester_.cancel_all();
  if (connection_ != nullptr && requester_.attached()) ingress_.dialer().hang_up(*connection_);
}

/// Once nothing is out any more; looked at in each tick.
void TcpClient::finish_closing() noexcept {
  if (receiving_ || sending_) return;
  if (socket_ >= 0) {
    ::close(std::exchange(socket_, -1));
    queue_.clear();
    for (ClientCall& exchange : exchanges_)
      if (exchange.state == ClientCall::State::Sending) free(exchange);
    while (ClientCall* const exchange = ready_.pop_front()) free(*exchange);
    release_record();
    stream_.reset();
  }
  if (in_use_ > 0 || requester_.attached()) return;
  if (connection_ != nullptr) ingress_.forget(*std::exchange(connection_, nullptr), *this);
  was_connected_ = false;
  state_ = State::Free;
}

void TcpClient::on_received(int result) noexcept {
  receiving_ = false;
  if (state_ != State::Open) return;
  if (result <= 0) return lose();
  moved_ns_ = ingress_.now_ns();
  ingress_.count(Ingress::Counter::received_bytes, static_cast<std::uint64_t>(result));
  stream_.received(static_cast<std::size_t>(result));
  handle_records();
}

void TcpClient::on_sent(int result) noexcept {
  sending_ = false;
  if (state_ != State::Open) return;
  if (result <= 0) return lose();
  moved_ns_ = ingress_.now_ns();
  ingress_.count(Ingress::Counter::sent_bytes, static_cast<std::uint64_t>(result));
  queue_.sent(static_cast<std::size_t>(result), [this](void* owner) {
    auto& exchange = *static_cast<ClientCall*>(owner);
    if (--exchange.pieces_left == 0) free(exchange);
  });
  pump();
  flush();
}

void TcpClient::flush() noexcept {
  dirty_ = false;
  if (state_ != State::Open || sending_ || queue_.empty()) return;
  const auto vectors = queue_.gather();
  message_.msg_iov = vectors.data();
  message_.msg_iovlen = vectors.size();
  sending_ = true;
  ingress_.uring().send(this, socket_, &message_);
}

void TcpClient::touch() noexcept {
  if (!std::exchange(dirty_, true)) ingress_.to_be_flushed(*this);
}

void TcpClient::stall() noexcept {
  if (!std::exchange(stalled_, true)) ingress_.to_be_resumed(*this);
}

void TcpClient::resume() noexcept {
  stalled_ = false;
  if (state_ == State::Open && !receiving_) handle_records();
}

void TcpClient::handle_records() noexcept {
  while (state_ == State::Open) {
    switch (stream_.next()) {
      case tcp::RecordStream::Step::Record:
        if (!on_record(stream_.record())) {
          stream_.keep();
          return stall();
        }
        release_record();
        break;
      case tcp::RecordStream::Step::NeedBytes: {
        const auto room = stream_.room();
        receiving_ = true;
        return ingress_.uring().receive(this, socket_, room.data(), room.size());
      }
      case tcp::RecordStream::Step::NeedMemory: {
        const Loan loan = borrow(tcp::kMaxRecordBytes);
        if (loan.address == nullptr) return stall();
        stream_.lend(loan.address);
        break;
      }
      case tcp::RecordStream::Step::Skipped:
        ingress_.count(Ingress::Counter::long_records);
        release_record();
        if (ClientCall* const exchange = take_exchange(xdr::load_u32(stream_.record().data())))
          fail(*exchange);
        else
          lose();  // no room for the answer
        break;
      case tcp::RecordStream::Step::Broken:
        ingress_.count(Ingress::Counter::bad_records);
        return lose();
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
  ingress_.know(*connection, *this);
}

void TcpClient::tick(std::uint64_t now_ns) noexcept {
  if (state_ == State::Closing) return finish_closing();
  if (state_ != State::Open) return;
  const bool waits_for_bytes = stream_.in_memory() && (receiving_ || in_use_ == 0);
  if ((sending_ || waits_for_bytes) && now_ns - moved_ns_ > kStuckNs) {
    ingress_.count(Ingress::Counter::clients_stuck);
    return lose();
  }
  requester_.expire(now_ns);
  for (CallBack& call_back : call_backs_)
    if (call_back.call != nullptr && now_ns - call_back.begun_ns > kCallBackTimeoutNs) refuse(call_back);
  if (requester_.connected()) {
    was_connected_ = true;
    dial_after_ns_ = kFirstDialNs;
  }
  if (requester_.attached()) return;
  if (connection_ != nullptr) {
    ingress_.forget(*std::exchange(connection_, nullptr), *this);
    ingress_.count(Ingress::Counter::disconnects);
  }
  // A connection that the server has ended comes back with the next call.
  if (now_ns >= dial_ns_ && (in_use_ > 0 || !was_connected_)) dial();
}

// --- Calls

bool TcpClient::on_record(std::span<std::byte> record) noexcept {
  if (record.size() >= rpc::kMinDeniedReplyBytes) {
    switch (static_cast<rpc::MessageType>(xdr::load_u32(record.data() + xdr::kUnit))) {
      case rpc::MessageType::Call:
        return on_call(record);
      case rpc::MessageType::Reply:
        return on_answer(record), true;
    }
  }
  ingress_.count(Ingress::Counter::bad_records);
  return lose(), true;
}

bool TcpClient::is_outstanding(std::uint32_t xid) const noexcept {
  for (std::size_t i = 0; i < xids_.size(); ++i)
    if (xids_[i] == xid && exchanges_[i].state == ClientCall::State::Outstanding) return true;
  return false;
}

ClientCall* TcpClient::take_exchange(std::uint32_t xid) noexcept {
  ClientCall* const exchange = free_.pop_front();
  if (exchange == nullptr) return nullptr;
  ++in_use_;
  exchange->state = ClientCall::State::Outstanding;
  exchange->xid = xids_[exchange->index] = xid;
  exchange->submitting = exchange->refused = false;
  exchange->rooms_bytes = exchange->room_count = 0;
  exchange->begun_ns = ingress_.now_ns();
  return exchange;
}

/// False: it has to come again, when there is what it needs.
bool TcpClient::on_call(std::span<std::byte> record) noexcept {
  xdr::Reader reader(record);
  const rpc::CallDecodeResult call = rpc::decode_call(reader);
  if (call.status == rpc::CallDecode::Truncated || call.status == rpc::CallDecode::NotACall) {
    ingress_.count(Ingress::Counter::bad_records);
    return lose(), true;
  }
  const auto xid = static_cast<std::uint32_t>(call.header.xid);
  if (is_outstanding(xid)) return ingress_.count(Ingress::Counter::duplicate_calls), true;
  ClientCall* const exchange = requester_.free_requests() > 0 ? take_exchange(xid) : nullptr;
  if (exchange == nullptr) return wait(Ingress::Counter::waits_call);
  if (call.status != rpc::CallDecode::Ok) return answer_bad_call(*exchange, call), true;

  exchange->procedure = call.header.procedure;
  exchange->binding = rpc::is_wrapped(call.header.credential)
                          ? service::Binding{}
                          : ulb::find_binding(call.header.program, call.header.version);
  if (begin(*exchange, call.header, record, record.size() - reader.remaining())) return true;
  free(*exchange);
  return wait(Ingress::Counter::waits_memory);
}

bool TcpClient::wait(segment::IngressCounter why) noexcept {
  if (!stalled_) ingress_.count(why);
  return false;
}

void TcpClient::answer_bad_call(ClientCall& exchange, const rpc::CallDecodeResult& call) noexcept {
  ingress_.count(Ingress::Counter::bad_calls);
  const bool bad_credential = call.status == rpc::CallDecode::BadCred;
  xdr::Writer writer(*exchange.small);
  if (call.status == rpc::CallDecode::RpcMismatch)
    rpc::encode_rpc_mismatch(writer, call.header.xid);
  else
    rpc::encode_auth_error(writer, call.header.xid,
                           bad_credential ? rpc::AuthStat::BadCred : rpc::AuthStat::BadVerf);
  answer_small(exchange, writer.position());
}

/// Hands the call to the requester. False: there is no memory for it.
bool TcpClient::begin(ClientCall& exchange, const rpc::CallHeader& header, std::span<std::byte> record,
                      std::size_t arguments_at) noexcept {
  const bool in_memory = stream_.in_memory();
  const bool is_long = record.size() + kHeaderRoom > ingress_.config().inline_bytes;
  const bool to_reduce = is_long && exchange.binding.argument_items != nullptr;
  const std::uint32_t max_reply = plan_reply(exchange, header, record.subspan(arguments_at));
  const std::uint32_t reply_bytes = exchange.rooms_bytes + max_reply;
  if (reply_bytes > kSmallReplyBytes) {
    exchange.reply = borrow(reply_bytes);
    if (exchange.reply.address == nullptr) return false;
  }
  if (to_reduce && !in_memory) {  // short records are where the server cannot read
    exchange.call = borrow(record.size());
    if (exchange.call.address == nullptr) return false;
    std::memcpy(exchange.call.address, record.data(), record.size());
    record = {exchange.call.address, record.size()};
  }

  const std::uint64_t timeout_ns = ingress_.config().call_timeout_ns;
  rpcrdma::Request request{.payload = record,
                           .max_reply_bytes = max_reply,
                           .deadline_ns = timeout_ns == 0 ? 0 : exchange.begun_ns + timeout_ns,
                           .completion = &completed,
                           .context = &exchange};
  Reduction reduction;
  if (to_reduce) {
    const rdma::Lkey lkey = in_memory ? ingress_.record_lkey() : ingress_.lkey(exchange.call);
    reduce(exchange, record, arguments_at, lkey, reduction);
    request.reads = std::span(reduction.items).first(reduction.count);
    request.payload = reduction.payload;
  }
  std::array<rdma::Sge, kMaxPlacedItems> rooms;
  std::array<rpcrdma::WriteItem, kMaxPlacedItems> writes;
  if (exchange.rooms_bytes > 0) {
    for (std::uint32_t i = 0; i < exchange.room_count; ++i) {
      rooms[i] = {exchange.reply.address + exchange.room_at[i], exchange.room_bytes[i],
                  ingress_.lkey(exchange.reply)};
      if (exchange.room_bytes[i] > 0) writes[i].pieces = {&rooms[i], 1};
    }
    request.writes = std::span(writes).first(exchange.room_count);
  }

  exchange.submitting = true;
  const bool submitted = requester_.submit(request).has_value();
  exchange.submitting = false;
  if (!submitted) return false;
  ingress_.count(Ingress::Counter::calls);
  if (reduction.count > 0) ingress_.count(Ingress::Counter::reduced_calls);
  if (to_reduce && in_memory) exchange.call = {stream_.take_memory(), true};
  if (exchange.refused) {
    give_back(exchange.call);
    fail(exchange);
  }
  return true;
}

/// The eligible items of a call, each to be read from where it stands in `record`, and what is left without
/// them.
void TcpClient::reduce(const ClientCall& exchange, std::span<std::byte> record, std::size_t arguments_at,
                       rdma::Lkey lkey, Reduction& reduction) noexcept {
  std::array<service::Item, rpcrdma::kMaxReadItems> items;
  const std::size_t found =
      exchange.binding.argument_items(exchange.procedure, record.subspan(arguments_at), items);
  const auto scratch = ingress_.scratch();
  std::size_t bytes = 0;
  std::size_t from = 0;
  const auto keep = [&](std::size_t end) {
    std::memcpy(scratch.data() + bytes, record.data() + from, end - from);
    bytes += end - from;
  };
  for (std::size_t i = 0; i < found; ++i) {
    if (items[i].bytes == 0) continue;
    const std::size_t at = arguments_at + items[i].offset;
    keep(at);
    from = at + xdr::padded(std::size_t{items[i].bytes});
    rdma::Sge& piece = reduction.pieces[reduction.count];
    piece = {record.data() + at, items[i].bytes, lkey};
    reduction.items[reduction.count++] = {.position = static_cast<rpcrdma::Position>(at),
                                          .pieces = {&piece, 1}};
  }
  keep(record.size());
  reduction.payload = scratch.first(bytes);
}

/// Rooms for the data that the call asks for, and how long the rest of its reply can be.
std::uint32_t TcpClient::plan_reply(ClientCall& exchange, const rpc::CallHeader& header,
                                    std::span<const std::byte> arguments) noexcept {
  const service::Binding& binding = exchange.binding;
  std::uint64_t most = rpc::kMinReplyBytes;
  if (header.credential.flavor != rpc::AuthFlavor::None && header.credential.flavor != rpc::AuthFlavor::Sys)
    most += rpc::kMaxAuthBytes;
  if (binding.max_results_bytes == nullptr) return tcp::kMaxRecordBytes;
  most += binding.max_results_bytes(header.procedure, arguments);
  if (most <= kSmallReplyBytes) return static_cast<std::uint32_t>(most);
  if (binding.expected_items != nullptr)
    exchange.room_count =
        static_cast<std::uint32_t>(binding.expected_items(header.procedure, arguments, exchange.room_bytes));
  for (std::uint32_t i = 0; i < exchange.room_count; ++i) {
    const std::uint64_t bytes = xdr::padded(std::size_t{exchange.room_bytes[i]});
    exchange.room_at[i] = exchange.rooms_bytes;
    if (bytes < kMinPlacedBytes || exchange.rooms_bytes + bytes > tcp::kMaxRecordBytes) {
      exchange.room_bytes[i] = 0;
      continue;
    }
    exchange.rooms_bytes += static_cast<std::uint32_t>(bytes);
    most -= std::min(most, bytes);
  }
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(most, tcp::kMaxRecordBytes - exchange.rooms_bytes));
}

/// The memory of the record that was handled, if it had some and nobody took it.
void TcpClient::release_record() noexcept {
  Loan loan{stream_.take_memory(), true};
  give_back(loan);
}

Loan TcpClient::borrow(std::size_t bytes) noexcept {
  Loan loan = ingress_.borrow(bytes);
  if (!loan.is_record || loan.address == nullptr) return loan;
  const std::uint32_t share = std::max(ingress_.config().record_buffers / kShareOfRecords, 2u);
  if (records_held_ < share) return ++records_held_, loan;
  return ingress_.give_back(loan), Loan{};
}

void TcpClient::give_back(Loan& loan) noexcept {
  if (loan.address == nullptr) return;
  if (loan.is_record) --records_held_;
  ingress_.give_back(loan);
}

// --- Replies

void TcpClient::completed(void* context, const rpcrdma::Reply& reply) noexcept {
  auto& exchange = *static_cast<ClientCall*>(context);
  if (exchange.submitting)
    exchange.refused = true;
  else
    exchange.client->on_reply(exchange, reply);
}

void TcpClient::on_reply(ClientCall& exchange, const rpcrdma::Reply& reply) noexcept {
  give_back(exchange.call);
  if (state_ != State::Open) return free(exchange);
  ingress_.area().server_ns.record(ingress_.now_ns() - exchange.begun_ns);
  if (reply.status() == rpcrdma::CallStatus::TimedOut)
    on_timeout(exchange);
  else
    note_answer();
  if (reply.status() != rpcrdma::CallStatus::Ok || !build(exchange, reply)) return fail(exchange);
  ingress_.count(Ingress::Counter::replies);
  make_ready(exchange);
}

void TcpClient::note_answer() noexcept {
  answered_ns_ = ingress_.now_ns();
  was_connected_ = true;
}

/// Calls that were given up keep their credits (V1-056): where nothing is answered at all, only a new
/// connection has others.
void TcpClient::on_timeout(const ClientCall& exchange) noexcept {
  ingress_.count(Ingress::Counter::timeouts);
  if (answered_ns_ < exchange.begun_ns && requester_.attached()) ingress_.dialer().hang_up(*connection_);
}

/// Puts the reply together from the message and the data that was placed. False: the two contradict each
/// other, or there is no room for it.
bool TcpClient::build(ClientCall& exchange, const rpcrdma::Reply& reply) noexcept {
  struct Placed final : service::PlacedResults {
    const rpcrdma::Reply& reply;
    const ClientCall& exchange;
    bool defect = false;
    bool lost = false;
    Placed(const rpcrdma::Reply& r, const ClientCall& e) : reply(r), exchange(e) {}
    void unreadable() noexcept override { lost = true; }
    bool placed(std::size_t index, std::uint32_t bytes) noexcept override {
      if (index >= exchange.room_count || exchange.room_bytes[index] == 0) return false;
      const auto where = reply.item(index, bytes).where;
      defect = defect || where == rpcrdma::ItemResult::Where::Defect;
      return where == rpcrdma::ItemResult::Where::Placed;
    }
  };
  auto message = reply.message();
  std::byte* to = exchange.small->data();
  std::size_t room = kSmallReplyBytes;
  if (message.size() > kSmallReplyBytes && exchange.reply.address == nullptr)
    exchange.reply = borrow(message.size());
  if (exchange.reply.address != nullptr) {
    to = exchange.reply.address + exchange.rooms_bytes;
    room = (exchange.reply.is_record ? tcp::kMaxRecordBytes : tcp::kStreamBytes) - exchange.rooms_bytes;
  }
  if (message.size() > room) return false;
  std::memcpy(to, message.data(), message.size());
  message = {to, message.size()};

  xdr::Reader reader(message);
  const rpc::ReplyDecodeResult header = rpc::decode_reply(reader);
  if (!header.ok) return false;
  std::array<service::Item, kMaxPlacedItems> items;
  std::size_t count = 0;
  const std::size_t results_at = message.size() - reader.remaining();
  Placed placed(reply, exchange);
  if (exchange.rooms_bytes > 0 && header.header.success() && exchange.binding.result_items != nullptr)
    count = exchange.binding.result_items(exchange.procedure, reader.rest(), &placed, items);
  if (placed.defect) return false;
  // Data whose place cannot be found would be lost in silence. That of a result which is not there does not
  // matter (F-07, V1-109).
  for (std::uint32_t i = 0; placed.lost && i < exchange.room_count; ++i)
    if (reply.returned(i) > 0 && (i >= count || !items[i].placed)) return false;

  std::size_t from = xdr::kUnit;
  exchange.total_bytes = static_cast<std::uint32_t>(message.size());
  exchange.piece_count = 0;
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!items[i].placed) continue;
    const std::size_t at = results_at + items[i].offset;
    std::byte* const data = exchange.reply.address + exchange.room_at[i];
    const std::size_t padded = xdr::padded(std::size_t{items[i].bytes});
    std::memset(data + items[i].bytes, 0, padded - items[i].bytes);
    exchange.pieces[exchange.piece_count++] = message.subspan(from, at - from);
    exchange.pieces[exchange.piece_count++] = {data, padded};
    exchange.total_bytes += static_cast<std::uint32_t>(padded);
    from = at;
    any = true;
  }
  if (from < message.size()) exchange.pieces[exchange.piece_count++] = message.subspan(from);
  if (any) ingress_.count(Ingress::Counter::placed_replies);
  return true;
}

void TcpClient::fail(ClientCall& exchange) noexcept {
  ingress_.count(Ingress::Counter::failures);
  xdr::Writer writer(*exchange.small);
  rpc::encode_accepted(writer, static_cast<rpc::Xid>(exchange.xid), {}, rpc::AcceptStat::SystemErr);
  answer_small(exchange, writer.position());
}

void TcpClient::answer_small(ClientCall& exchange, std::size_t bytes) noexcept {
  exchange.total_bytes = static_cast<std::uint32_t>(bytes);
  exchange.pieces[0] = std::span(*exchange.small).subspan(xdr::kUnit, bytes - xdr::kUnit);
  exchange.piece_count = 1;
  make_ready(exchange);
}

void TcpClient::make_ready(ClientCall& exchange) noexcept {
  exchange.state = ClientCall::State::Ready;
  ready_.push_back(exchange);
  pump();
}

void TcpClient::pump() noexcept {
  while (ClientCall* const exchange = ready_.front()) {
    const bool copied = exchange->total_bytes <= tcp::kMaxCopiedBytes;
    if (!queue_.room_for(xdr::kUnit + (copied ? exchange->total_bytes : xdr::kUnit),
                         copied ? 0 : exchange->piece_count))
      return;
    ready_.pop_front();
    queue_.copy(tcp::record_head(exchange->total_bytes, exchange->xid));
    const auto pieces = std::span(exchange->pieces).first(exchange->piece_count);
    for (const auto piece : pieces) {
      if (copied)
        queue_.copy(piece);
      else
        queue_.refer(piece, exchange);
    }
    exchange->state = ClientCall::State::Sending;
    exchange->pieces_left = exchange->piece_count;
    touch();
    if (copied) free(*exchange);
  }
}

void TcpClient::free(ClientCall& exchange) noexcept {
  give_back(exchange.call);
  give_back(exchange.reply);
  exchange.state = ClientCall::State::Free;
  free_.push_front(exchange);
  --in_use_;
  ingress_.note_release();
}

// --- Calls of the server

void TcpClient::on_call_back(service::Call& call) noexcept {
  const auto message = call.message();
  const auto place = std::find_if(call_backs_.begin(), call_backs_.end(),
                                  [](const CallBack& other) { return other.call == nullptr; });
  if (state_ != State::Open || place == call_backs_.end() || message.size() > tcp::kMaxCopiedBytes ||
      !queue_.room_for(xdr::kUnit + message.size(), 0)) {
    ingress_.count(Ingress::Counter::callbacks_refused);
    return call.complete(rpc::AcceptStat::SystemErr);
  }
  ingress_.count(Ingress::Counter::callbacks);
  *place = {&call, xdr::load_u32(message.data()), ingress_.now_ns()};
  queue_.copy(tcp::record_head(message.size(), place->xid));
  queue_.copy(message.subspan(xdr::kUnit));
  touch();
}

void TcpClient::on_answer(std::span<const std::byte> record) noexcept {
  const std::uint32_t xid = xdr::load_u32(record.data());
  for (CallBack& call_back : call_backs_) {
    if (call_back.call == nullptr || call_back.xid != xid) continue;
    if (!call_back.call->require_results(record.size())) return refuse(call_back);
    service::Call& call = *std::exchange(call_back.call, nullptr);
    call.write_whole_reply();
    call.results().opaque_fixed(record.subspan(xdr::kUnit));
    return call.complete(rpc::AcceptStat::Success);
  }
  ingress_.count(Ingress::Counter::bad_records);  // nobody has asked
}

void TcpClient::refuse(CallBack& call_back) noexcept {
  ingress_.count(Ingress::Counter::callbacks_refused);
  std::exchange(call_back.call, nullptr)->complete(rpc::AcceptStat::SystemErr);
}

void TcpClient::on_server_gone() noexcept {
  for (CallBack& call_back : call_backs_)
    if (call_back.call != nullptr) refuse(call_back);
}

}  // namespace sluice::ingress
