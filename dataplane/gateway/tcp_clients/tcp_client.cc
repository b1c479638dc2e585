// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_clients/tcp_client.h"

#include <poll.h>
#include <unistd.h>

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/gateway/tcp_clients/reverse_gateway.h"

namespace sluice::tcp_clients {

TcpClient::TcpClient(ReverseGateway& gateway)
    : gateway_(gateway),
      buffers_(gateway.server()),
      stream_bytes_(FixedArray<std::byte>::for_overwrite(tcp::kStreamBytes)),
      stream_({stream_bytes_.data(), tcp::kStreamBytes}, gateway.config().record_bytes()),
      receiver_(gateway.uring(), this) {}

TcpClient::~TcpClient() {
  if (socket_ >= 0) ::close(socket_);
}

// --- The client's connection

void TcpClient::open(int socket, Host& host) noexcept {
  static_cast<void>(SLUICE_INVARIANT(socket_ < 0 && server_ == nullptr && ready_.empty(), gateway_state));
  static_cast<void>(SLUICE_INVARIANT(queue_.empty() && buffers_.records_held() == 0, pool_balance));
  static_cast<void>(SLUICE_INVARIANT(!sending_ && !awaiting_end_ && !receiver_.busy(), gateway_state));
  socket_ = socket;
  host_ = &host;
  transition(State::Open);
  gone_ = restored_ = false;
  record_since_ns_ = half_closed_ns_ = 0;
  awaiting_end_ = true;
  gateway_.uring().await_end(this, socket_);
  opened_ns_ = moved_ns_ = gateway_.now_ns();
  handle_records();
}

void TcpClient::disconnect() noexcept {
  if (!is_connected()) return;
  transition(State::Closing);
  receiver_.stop();
  gateway_.count(ReverseGateway::Counter::clients_ended);
  ::shutdown(socket_, SHUT_RDWR);  // completes the io_uring operations in flight
  gateway_.server().connections().forget(*this);
  if (server_ != nullptr) server_->cancel_calls();
  gateway_.count(ReverseGateway::Counter::callbacks_refused, server_calls_.drop_all());
}

/// Disconnects the client in the next flush(). Used by functions that the requester calls, because the
/// requester cannot cancel calls at that point.
void TcpClient::disconnect_soon() noexcept {
  if (!is_connected() || state_ == State::Resetting) return;
  transition(State::Resetting);
  gateway_.count(ReverseGateway::Counter::clients_reset);
  schedule_flush();
}

/// Closes the socket when no io_uring operation is in flight, and then frees the client when no call is
/// outstanding. Called in each tick while the state is Closing.
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
  if (server_ != nullptr) gateway_.server().connections().give_back(*std::exchange(server_, nullptr));
  static_cast<void>(SLUICE_INVARIANT(ready_.empty() && buffers_.records_held() == 0, pool_balance));
  static_cast<void>(SLUICE_INVARIANT(server_calls_.empty() && !wanted_link.linked(), list_membership));
  transition(State::Free);
  gateway_.on_free(*this);
}

void TcpClient::on_received(const tcp::Uring::Completion& end) noexcept {
  take(receiver_.on_received(end));
}

void TcpClient::on_received_again(const tcp::Uring::Completion& end) noexcept {
  take(receiver_.on_received_again(end));
}

void TcpClient::take(std::optional<int> received) noexcept {
  if (!is_connected() || !received) return;
  if (*received == 0 && has_replies()) {
    if (half_closed_ns_ == 0) half_closed_ns_ = gateway_.now_ns();
    return;
  }
  if (*received <= 0) return disconnect();
  moved_ns_ = gateway_.now_ns();
  gateway_.count(ReverseGateway::Counter::received_bytes, static_cast<std::uint64_t>(*received));
  stream_.received(static_cast<std::size_t>(*received));
  handle_records();
}

void TcpClient::on_sent(int result) noexcept {
  SLUICE_INVARIANT_DEBUG(sending_ && socket_ >= 0, gateway_state);
  sending_ = false;
  if (!is_connected()) return;
  if (result <= 0) return disconnect();
  moved_ns_ = gateway_.now_ns();
  gateway_.count(ReverseGateway::Counter::sent_bytes, static_cast<std::uint64_t>(result));
  queue_.sent(static_cast<std::size_t>(result), [this](void* owner) {
    auto& call = *static_cast<ClientCall*>(owner);
    SLUICE_INVARIANT_DEBUG(call.pieces_left > 0 && call.state == ClientCall::State::Sending, gateway_state);
    if (--call.pieces_left == 0) free(call);
  });
  pump();
  send_queued();
}

/// Records the end of the connection, which a receive does not report while a call waits. tick() handles it.
void TcpClient::on_ended(int result) noexcept {
  static_cast<void>(SLUICE_INVARIANT(awaiting_end_, gateway_state));
  awaiting_end_ = false;
  gone_ = (result & (POLLERR | POLLHUP)) != 0;
  if (half_closed_ns_ == 0) half_closed_ns_ = gateway_.now_ns();
}

void TcpClient::flush() noexcept {
  flush_scheduled_ = false;
  if (state_ == State::Resetting) return disconnect();
  send_queued();
}

void TcpClient::send_queued() noexcept {
  if (!is_connected() || sending_ || queue_.empty()) return;
  const auto vectors = queue_.gather();
  SLUICE_INVARIANT_DEBUG(socket_ >= 0 && !vectors.empty(), gateway_state);
  message_.msg_iov = vectors.data();
  message_.msg_iovlen = vectors.size();
  sending_ = true;
  gateway_.uring().send(this, socket_, &message_);
}

void TcpClient::schedule_flush() noexcept {
  if (!std::exchange(flush_scheduled_, true)) gateway_.schedule_flush(*this);
}

void TcpClient::wait_for_release() noexcept {
  record_since_ns_ = 0;  // the record does not wait for bytes of the client
  if (!wanted_link.linked()) gateway_.schedule_resume(*this);
}

void TcpClient::resume() noexcept {
  if (state_ == State::Open && !receiver_.asked()) handle_records();
}

void TcpClient::handle_records() noexcept {
  while (state_ == State::Open) {
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
        const PoolBuffer buffer = buffers_.acquire(gateway_.config().record_bytes());
        if (buffer.address == nullptr) {
          count_wait(ReverseGateway::Counter::waits_memory);
          return wait_for_release();
        }
        stream_.lend(buffer.address);
        break;
      }
      case tcp::RecordStream::Step::Skipped:
        gateway_.count(ReverseGateway::Counter::long_records);
        return disconnect_soon();
      case tcp::RecordStream::Step::Broken:
        gateway_.count(ReverseGateway::Counter::bad_records);
        return disconnect();
    }
  }
}

// --- The connection to the server

void TcpClient::on_lent(ServerConnection& connection) noexcept {
  static_cast<void>(SLUICE_INVARIANT(server_ == nullptr && connection.client() == this, gateway_state));
  server_ = &connection;
  resume();
}

bool TcpClient::on_taken() noexcept {
  static_cast<void>(SLUICE_INVARIANT(server_ != nullptr && calls_in_use() == 0, gateway_state));
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

/// Returns true if a client that has shut down its sending side gets no further reply.
bool TcpClient::is_finished(std::uint64_t now_ns) const noexcept {
  if (receiver_.asked()) return false;  // the socket may still contain the client's last bytes
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
  if (!is_connected()) return;
  if (half_closed_ns_ != 0 && is_finished(now_ns)) return disconnect();
  if (state_ == State::Draining && !has_replies()) return disconnect();
  if (is_overdue(now_ns)) {
    gateway_.count(ReverseGateway::Counter::clients_stuck);
    disconnect();
  }
}

// --- Calls of the server

void TcpClient::on_server_call(service::Call& call) noexcept {
  if (state_ != State::Open || !server_calls_.start(call, queue_)) {
    gateway_.count(ReverseGateway::Counter::callbacks_refused);
    return call.complete(rpc::AcceptStat::SystemErr);
  }
  gateway_.count(ReverseGateway::Counter::callbacks);
  schedule_flush();
}

void TcpClient::on_client_reply(std::span<const std::byte> record) noexcept {
  switch (server_calls_.on_reply(record)) {
    case ServerCalls::Answer::Completed:
      break;
    case ServerCalls::Answer::TooLong:
      gateway_.count(ReverseGateway::Counter::callbacks_refused);
      break;
    case ServerCalls::Answer::Unknown:
      gateway_.count(ReverseGateway::Counter::bad_records);
      break;
  }
}

/// Disconnects a half-closed client, because its calls would be retransmitted to the server and the client
/// may already have retransmitted them itself. Drops the server's calls.
void TcpClient::on_server_gone() noexcept {
  if (half_closed_ns_ != 0) disconnect_soon();
  gateway_.count(ReverseGateway::Counter::callbacks_refused, server_calls_.drop_all());
}

}  // namespace sluice::tcp_clients
