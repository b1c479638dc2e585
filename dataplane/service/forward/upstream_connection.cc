// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/forward/upstream_connection.h"

#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "dataplane/service/forward/upstream.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::forward {
UpstreamConnection::UpstreamConnection(Upstream& upstream, tcp::Uring& uring)
    : upstream_(upstream),
      uring_(uring),
      stream_bytes_(new std::byte[tcp::kStreamBytes]),
      stream_({stream_bytes_.get(), tcp::kStreamBytes}, tcp::kMaxRecordBytes) {}

UpstreamConnection::~UpstreamConnection() {
  if (socket_ >= 0) ::close(socket_);
}

// --- The connection

void UpstreamConnection::open() noexcept {
  const UpstreamConfig& config = upstream_.config();
  socket_ = tcp::connecting_socket(config.address.ss_family, config.privileged_port, tcp::kPeerTimeoutMs);
  if (socket_ < 0) {
    upstream_.count(Upstream::Counter::connect_failures);
    return finish_closing();
  }
  state_ = State::Connecting;
  connecting_ = true;
  uring_.connect(this, socket_, reinterpret_cast<const sockaddr*>(&config.address), config.address_bytes);
}

void UpstreamConnection::on_connected(int result) noexcept {
  connecting_ = false;
  if (result < 0 || state_ == State::Closing) {
    if (result < 0) upstream_.count(Upstream::Counter::connect_failures);
    return finish_closing();
  }
  upstream_.count(Upstream::Counter::connects);
  state_ = State::Up;
  handle_records();
  pump();
}

void UpstreamConnection::lose() noexcept {
  if (state_ != State::Up && state_ != State::Connecting) return;
  if (state_ == State::Up) upstream_.count(Upstream::Counter::disconnects);
  state_ = State::Closing;
  ::shutdown(socket_, SHUT_RDWR);  // completes the io_uring operations in flight
  if (!busy()) finish_closing();
}

void UpstreamConnection::finish_closing() noexcept {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  ++epoch_;
  queue_.clear();
  give_memory_back();
  skipping_unwanted_ = false;
  stream_.reset();
  // Completing calls below may submit new ones: they must find the connection closed, with nothing to send.
  state_ = State::Closing;
  unsent_ = nullptr;
  const bool unanswered =
      calls_.first() != nullptr && calls_.first()->state == ForwardedCall::State::AwaitingReply;
  judge_suspect();
  serial_resend_ = serial_resend_ || unanswered;
  upstream_.on_lost(*this);
  unsent_ = calls_.first();
  if (calls_.empty() || retiring_) {
    serial_resend_ = false;
    state_ = State::Idle;
    return;
  }
  state_ = State::Retrying;
  retry_ns_ = upstream_.now_ns() + retry_after_ns_;
  retry_after_ns_ = std::min(2 * retry_after_ns_, kLastRetryNs);
  upstream_.schedule_retry(*this);
}

void UpstreamConnection::tick(std::uint64_t now_ns) noexcept {
  if (state_ == State::Retrying && now_ns >= retry_ns_) open();
}

void UpstreamConnection::retire() noexcept {
  retiring_ = true;
  client_ = nullptr;
  if (state_ == State::Retrying) state_ = State::Idle;
  lose();
}

// --- TX

void UpstreamConnection::submit(ForwardedCall& forwarded) noexcept {
  forwarded.connection = this;
  forwarded.state = ForwardedCall::State::AwaitingSend;
  calls_.push_back(forwarded);
  if (unsent_ == nullptr) unsent_ = &forwarded;
  if (state_ == State::Idle) open();
  pump();
  if (forwarded.state == ForwardedCall::State::AwaitingSend) upstream_.count(Upstream::Counter::waits_room);
}

void UpstreamConnection::remove(ForwardedCall& forwarded) noexcept {
  if (unsent_ == &forwarded) unsent_ = forwarded.next;
  calls_.remove(forwarded);
  forwarded.connection = nullptr;
  if (!serial_resend_ || state_ != State::Up) return;
  serial_resend_ = false;
  for (const ForwardedCall* left = calls_.first(); left != nullptr; left = left->next)
    serial_resend_ = serial_resend_ || left->resent;
  pump();
}

void UpstreamConnection::pump() noexcept {
  while (state_ == State::Up && unsent_ != nullptr && !(serial_resend_ && unsent_ != calls_.first()) &&
         enqueue(*unsent_))
    unsent_ = unsent_->next;
}

/// If the connection was lost with a single call on it, that call may be the cause: it moves behind the
/// others and gets a strike if the upstream has answered other calls since the last strike. If it has not,
/// the upstream itself may be the cause.
void UpstreamConnection::judge_suspect() noexcept {
  ForwardedCall* const first = calls_.first();
  if (!serial_resend_ || first == nullptr || first->state != ForwardedCall::State::AwaitingReply) return;
  calls_.remove(*first);
  calls_.push_back(*first);
  if (!first->reply_needed || !std::exchange(answered_, false)) return;
  if (++first->strikes < kMaxStrikes) return;
  upstream_.count(Upstream::Counter::given_up);
  first->reply_needed = false;
}

bool UpstreamConnection::enqueue(ForwardedCall& forwarded) noexcept {
  const auto message = forwarded.call->message();
  const bool copied = message.size() <= tcp::kMaxCopiedBytes;
  const auto rest = message.subspan(xdr::kUnit);
  if (!queue_.room_for(tcp::kRecordHeadBytes + (copied ? rest.size() : 0))) return false;
  queue_.copy(tcp::record_head(message.size(), forwarded.xid));
  if (copied)
    queue_.copy(rest);
  else
    queue_.refer(rest, &forwarded);
  forwarded.in_send_queue = !copied;
  forwarded.state = ForwardedCall::State::AwaitingReply;
  upstream_.on_sending(forwarded);
  mark_dirty();
  return true;
}

bool UpstreamConnection::answer(std::uint32_t xid, std::span<const std::byte> message) noexcept {
  if (state_ != State::Up || message.size() < xdr::kUnit || !queue_.room_for(xdr::kUnit + message.size()))
    return false;
  queue_.copy(tcp::record_head(message.size(), xid));
  queue_.copy(message.subspan(xdr::kUnit));
  mark_dirty();
  return true;
}

void UpstreamConnection::mark_dirty() noexcept {
  if (!dirty) upstream_.schedule_flush(*this);
}

void UpstreamConnection::flush() noexcept {
  if (state_ != State::Up || sending_ || queue_.empty()) return;
  const auto vectors = queue_.gather();
  message_.msg_iov = vectors.data();
  message_.msg_iovlen = vectors.size();
  sending_ = true;
  uring_.send(this, socket_, &message_);
}

void UpstreamConnection::on_sent(int result) noexcept {
  sending_ = false;
  if (state_ == State::Closing) {
    if (!busy()) finish_closing();
    return;
  }
  if (result <= 0) return lose();
  upstream_.count(Upstream::Counter::sent_bytes, static_cast<std::uint64_t>(result));
  queue_.sent(static_cast<std::size_t>(result), [this](void* owner) {
    auto& forwarded = *static_cast<ForwardedCall*>(owner);
    forwarded.in_send_queue = false;
    upstream_.on_message_sent(forwarded);
  });
  pump();
  flush();
}

// --- RX

void UpstreamConnection::on_received(int result) noexcept {
  receiving_ = false;
  if (state_ == State::Closing) {
    if (!busy()) finish_closing();
    return;
  }
  if (result <= 0) return lose();
  upstream_.count(Upstream::Counter::received_bytes, static_cast<std::uint64_t>(result));
  stream_.received(static_cast<std::size_t>(result));
  handle_records();
}

void UpstreamConnection::give_memory_back() noexcept {
  if (std::byte* const memory = stream_.take_memory()) upstream_.take_back(*this, record_xid_, memory);
}

/// For a long record: what the call has that it answers. Others are not received.
void UpstreamConnection::find_memory() noexcept {
  const auto head = stream_.head();
  record_xid_ = xdr::load_u32(head.data());
  record_type_ = static_cast<rpc::MessageType>(xdr::load_u32(head.data() + xdr::kUnit));
  std::byte* const memory =
      record_type_ == rpc::MessageType::Reply ? upstream_.lend_memory(*this, record_xid_) : nullptr;
  if (memory != nullptr) return stream_.lend(memory);
  stream_.skip_record();
  skipping_unwanted_ = true;
}

void UpstreamConnection::handle_records() noexcept {
  while (state_ == State::Up) {
    switch (stream_.next()) {
      case tcp::RecordStream::Step::Record:
        upstream_.on_record(*this, stream_.record());
        give_memory_back();
        break;
      case tcp::RecordStream::Step::NeedBytes: {
        const auto room = stream_.room();
        receiving_ = true;
        return uring_.receive(this, socket_, room.data(), room.size());
      }
      case tcp::RecordStream::Step::NeedMemory:
        find_memory();
        break;
      case tcp::RecordStream::Step::Skipped:
        give_memory_back();
        if (std::exchange(skipping_unwanted_, false))
          upstream_.on_unwanted_record(*this, record_xid_, record_type_);
        else
          upstream_.on_long_record(*this, stream_.record());
        break;
      case tcp::RecordStream::Step::Broken:
        upstream_.count(Upstream::Counter::bad_records);
        return lose();
    }
  }
}

}  // namespace sluice::forward
