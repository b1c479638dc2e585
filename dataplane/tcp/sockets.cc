// SPDX-License-Identifier: Apache-2.0
#include "dataplane/tcp/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::tcp {
namespace {

// Lowest port that bind_privileged() uses. Well-known services use lower ports.
constexpr std::uint16_t kFirstPrivilegedPort = 665;
constexpr std::uint16_t kLastPrivilegedPort = kPrivilegedPortsEnd - 1;

constexpr PeerAddress any_address(int family) noexcept {
  return family == AF_INET ? PeerAddress::from_ipv4(0, 0, 0, 0) : PeerAddress{};
}

int bind_to(int socket, const PeerAddress& host, std::uint16_t port) noexcept {
  sockaddr_storage address;
  const socklen_t bytes = socket_address(host, port, address);
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 ? 0 : -errno;
}

/// Binds to a privileged port. Each attempt uses the next port, cyclically, so that ports are reused as late
/// as possible.
int bind_privileged(int socket, const PeerAddress& host) noexcept {
  static std::atomic<std::uint32_t> next{0};
  constexpr std::uint32_t kPorts = kLastPrivilegedPort - kFirstPrivilegedPort + 1;
  int error = 0;
  for (std::uint32_t i = 0; i < kPorts; ++i) {
    const auto port = static_cast<std::uint16_t>(kLastPrivilegedPort - next.fetch_add(1) % kPorts);
    error = bind_to(socket, host, port);
    if (error != -EADDRINUSE) break;
  }
  return error;
}

}  // namespace

int listening_socket(const sockaddr* address, socklen_t bytes) noexcept {
  const int fd = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd, address, bytes) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  return -error;
}

PeerAddress local_address(int socket) noexcept {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes);
  return peer_address(address);
}

std::uint16_t local_port(int socket) noexcept {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes);
  return port_of(address);
}

std::uint16_t port_of(const sockaddr_storage& address) noexcept {
  in_port_t port = 0;  // The port has the same offset in both address families.
  std::memcpy(&port, reinterpret_cast<const std::byte*>(&address) + offsetof(sockaddr_in, sin_port),
              sizeof port);
  return ntohs(port);
}

void tune(int fd, unsigned peer_timeout_ms) noexcept {
  const int on = 1;
  const int probe_after_s = static_cast<int>(peer_timeout_ms / 3000);
  const int probes = 2;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &probe_after_s, sizeof probe_after_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe_after_s, sizeof probe_after_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &peer_timeout_ms, sizeof peer_timeout_ms);
}

void reset(int fd) noexcept {
  const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
  static_cast<void>(::connect(fd, &none, sizeof none));
}

int connecting_socket(int family, bool privileged, unsigned peer_timeout_ms,
                      const PeerAddress* from) noexcept {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int attempts = 3;
  tune(fd, peer_timeout_ms);
  ::setsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &attempts, sizeof attempts);
  if (!privileged && from == nullptr) return fd;
  const PeerAddress host = from != nullptr ? *from : any_address(family);
  const int bound = privileged ? bind_privileged(fd, host) : bind_to(fd, host, 0);
  if (bound == 0) return fd;
  ::close(fd);
  return bound;
}

int bound_socket(int family, bool privileged, unsigned peer_timeout_ms, std::uint16_t port) noexcept {
  const int fd = connecting_socket(family, false, peer_timeout_ms);
  if (fd < 0) return fd;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const PeerAddress any = any_address(family);
  const int bound = privileged && port == 0 ? bind_privileged(fd, any) : bind_to(fd, any, port);
  if (bound == 0) return fd;
  ::close(fd);
  return bound;
}

// --- Records in a stream

namespace {

constexpr std::uint32_t kLastFragment = 1u << 31;

}  // namespace

std::span<std::byte> RecordStream::room() noexcept {
  if (awaits_all_of_room()) return {memory_ + joined_, fragment_left_};
  if (begin_ == filled_ || filled_ == buffer_.size() || begin_ > buffer_.size() / 2) compact();
  return buffer_.subspan(filled_);
}

/// Moves the record to the front of the buffer, followed by the unparsed bytes.
void RecordStream::compact() noexcept {
  const std::size_t kept = memory_ != nullptr || skipping_ ? 0 : joined_;
  const std::size_t moved = unread();
  if (kept > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, kept);
  if (moved > 0) std::memmove(buffer_.data() + kept, buffer_.data() + at_, moved);
  begin_ = 0;
  at_ = kept;
  filled_ = kept + moved;
}

/// Reads a record mark. Moves the first words of a record up to the new fragment's data, because head() needs
/// them to be contiguous. Returns false if the record has too many empty fragments.
bool RecordStream::begin_fragment() noexcept {
  const std::uint32_t mark = xdr::load_u32(buffer_.data() + at_);
  at_ += xdr::kUnit;
  last_ = (mark & kLastFragment) != 0;
  fragment_left_ = mark & ~kLastFragment;
  in_fragment_ = begun_ = true;
  if (memory_ == nullptr && joined_ < kHeadBytes) {
    if (joined_ > 0) std::memmove(buffer_.data() + at_ - joined_, buffer_.data() + begin_, joined_);
    begin_ = at_ - joined_;
  }
  if (fragment_left_ == 0) ++empty_fragments_;
  return empty_fragments_ <= kMaxEmptyFragments;
}

/// Starts skipping the current record. Keeps its first word and drops the rest received so far. Returns false
/// if the record exceeds kMaxSkippedBytes.
bool RecordStream::begin_skipping() noexcept {
  const std::byte* const joined = memory_ != nullptr ? memory_ : buffer_.data() + begin_;
  std::memcpy(skipped_head_.data(), joined, smaller_of(joined_, skipped_head_.size()));
  skipping_ = true;
  skipped_ = joined_;
  joined_ = 0;
  begin_ = at_;
  return skipped_ + fragment_left_ <= kMaxSkippedBytes;
}

RecordStream::Step RecordStream::skip() noexcept {
  for (;;) {
    if (!in_fragment_) {
      begin_ = at_;
      if (unread() < xdr::kUnit) return Step::NeedBytes;
      if (!begin_fragment() || skipped_ + fragment_left_ > kMaxSkippedBytes) return Step::Broken;
    }
    const std::size_t here = smaller_of(fragment_left_, unread());
    if (skipped_ < skipped_head_.size())
      std::memcpy(skipped_head_.data() + skipped_, buffer_.data() + at_,
                  smaller_of<std::size_t>(here, skipped_head_.size() - skipped_));
    skipped_ += here;
    at_ += here;
    begin_ = at_;
    fragment_left_ -= here;
    if (fragment_left_ > 0) return Step::NeedBytes;
    in_fragment_ = false;
    if (!last_) continue;
    skipping_ = begun_ = false;
    empty_fragments_ = 0;
    record_ = skipped_head_;
    return Step::Skipped;
  }
}

RecordStream::Step RecordStream::next() noexcept {
  SLUICE_INVARIANT_DEBUG(at_ <= filled_ && filled_ <= buffer_.size(), buffer_bounds);
  if (std::exchange(kept_, false)) return Step::Record;
  if (skipping_) return skip();
  for (;;) {
    if (!in_fragment_) {
      if (joined_ == 0) begin_ = at_;
      if (unread() < xdr::kUnit && memory_ == nullptr && joined_ + xdr::kUnit > buffer_.size())
        return Step::NeedMemory;
      if (unread() < xdr::kUnit) return Step::NeedBytes;
      if (!begin_fragment()) return Step::Broken;
      if (joined_ + fragment_left_ > max_record_bytes_) return begin_skipping() ? skip() : Step::Broken;
    }
    if (memory_ == nullptr && joined_ + fragment_left_ > buffer_.size())
      return joined_ + unread() < kHeadBytes ? Step::NeedBytes : Step::NeedMemory;
    const std::size_t here = smaller_of(fragment_left_, unread());
    if (memory_ != nullptr) {
      if (here > 0) std::memcpy(memory_ + joined_, buffer_.data() + at_, here);
      begin_ = at_ + here;
    }
    // A fragment in the buffer is joined only once it is complete, so that its data stays contiguous.
    if (memory_ == nullptr && here < fragment_left_) return Step::NeedBytes;
    if (memory_ == nullptr && here > 0 && begin_ + joined_ != at_)
      std::memmove(buffer_.data() + begin_ + joined_, buffer_.data() + at_, here);
    joined_ += here;
    at_ += here;
    fragment_left_ -= here;
    if (fragment_left_ > 0) return Step::NeedBytes;
    in_fragment_ = false;
    if (!last_) continue;
    record_ = {memory_ != nullptr ? memory_ : buffer_.data() + begin_, joined_};
    joined_ = 0;
    begun_ = false;
    empty_fragments_ = 0;
    return Step::Record;
  }
}

void RecordStream::lend(std::byte* memory) noexcept {
  SLUICE_INVARIANT_DEBUG(memory != nullptr && memory_ == nullptr, pool_balance);
  SLUICE_INVARIANT_DEBUG(joined_ + fragment_left_ <= max_record_bytes_, buffer_bounds);
  memory_ = memory;
  if (joined_ > 0) std::memcpy(memory_, buffer_.data() + begin_, joined_);
  begin_ = at_;
}

void RecordStream::reset() noexcept {
  SLUICE_INVARIANT_DEBUG(memory_ == nullptr, pool_balance);
  record_ = {};
  kept_ = in_fragment_ = last_ = skipping_ = begun_ = false;
  empty_fragments_ = 0;
  fragment_left_ = joined_ = begin_ = at_ = filled_ = 0;
  memory_ = nullptr;
}

}  // namespace sluice::tcp
