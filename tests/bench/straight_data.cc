// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/straight_data.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "tests/bench/straight.h"

namespace sluice::bench {
namespace {

constexpr std::size_t kShortReplyBytes = 4096;  // upper limit
constexpr std::size_t kShortRepliesBytes = 64u << 10;
/// Maximum number of calls in one sendmsg().
constexpr std::uint32_t kCallsAtOnce = 32;

}  // namespace

StraightData::StraightData(std::uint16_t port, const ForwardedShape& shape, std::uint32_t depth)
    : shape_(shape),
      depth_(depth),
      socket_(connect_to(port)),
      data_(shape.writes() ? depth * std::size_t{shape.data_bytes} : 0),
      to_send_(depth) {
  const auto message = call_message(shape);
  call_.resize(xdr::kUnit + message.size());
  store_mark(call_.data(), message.size() + (shape.writes() ? shape.data_bytes : 0));
  std::memcpy(&call_[xdr::kUnit], message.data(), message.size());
  reply_bytes_ = xdr::kUnit + reply_message(shape).size() + (shape.reads() ? shape.data_bytes : 0);
  places_ = reply_bytes_ > kShortReplyBytes ? depth : 1;
  receive_bytes_ = places_ > 1 ? reply_bytes_ : kShortRepliesBytes;
  in_.resize(places_ * receive_bytes_);
}

StraightData::~StraightData() {
  ::close(socket_);
}

Rate StraightData::run(double seconds) {
  Rate rate;
  const std::uint64_t begin = now_ns();
  std::uint64_t now = begin;
  while (static_cast<double>(now - begin) < seconds * 1e9) {
    if (to_send_ > 0) send();
    const std::size_t answered = receive();
    rate.operations += answered;
    to_send_ += static_cast<std::uint32_t>(answered);
    now = now_ns();
  }
  rate.seconds = static_cast<double>(now - begin) / 1e9;
  return rate;
}

/// Sends as much of the ready calls as the socket accepts.
void StraightData::send() {
  vectors_.clear();
  for (std::uint32_t i = 0; i < std::min(to_send_, kCallsAtOnce); ++i) {
    vectors_.push_back({call_.data(), call_.size()});
    if (shape_.writes())
      vectors_.push_back({&data_[(calls_sent_ + i) % depth_ * shape_.data_bytes], shape_.data_bytes});
  }
  std::size_t skipped = sent_;
  auto first = vectors_.begin();
  for (; skipped >= first->iov_len; ++first) skipped -= first->iov_len;
  first->iov_base = static_cast<std::byte*>(first->iov_base) + skipped;
  first->iov_len -= skipped;
  msghdr message{};
  message.msg_iov = &*first;
  message.msg_iovlen = static_cast<std::size_t>(vectors_.end() - first);
  const auto sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && errno != EAGAIN) throw std::runtime_error("cannot send");
  if (sent > 0) advance(static_cast<std::size_t>(sent));
}

void StraightData::advance(std::size_t bytes) {
  const std::size_t call_bytes = call_.size() + (shape_.writes() ? shape_.data_bytes : 0);
  sent_ += bytes;
  const std::size_t calls = sent_ / call_bytes;
  sent_ %= call_bytes;
  calls_sent_ += calls;
  to_send_ -= static_cast<std::uint32_t>(calls);
}

/// Returns the number of replies that were completed.
std::size_t StraightData::receive() {
  std::byte* const to = in_.data() + replies_ % places_ * receive_bytes_;
  // A short reply that arrived in part is counted together with the data that follows, because neither is
  // read.
  const std::size_t at = places_ > 1 ? filled_ : 0;
  const auto got = ::recv(socket_, to + at, receive_bytes_ - at, MSG_DONTWAIT);
  if (got <= 0) return 0;
  if (filled_ == 0 && static_cast<std::size_t>(got) >= xdr::kUnit &&
      load_mark(to) != reply_bytes_ - xdr::kUnit)
    throw std::runtime_error("not the reply that was expected");
  filled_ += static_cast<std::size_t>(got);
  const std::size_t whole = filled_ / reply_bytes_;
  filled_ %= reply_bytes_;
  replies_ += whole;
  return whole;
}

}  // namespace sluice::bench
