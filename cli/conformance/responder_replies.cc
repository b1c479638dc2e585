// SPDX-License-Identifier: Apache-2.0
//
// Replies of the responder: sending them in both versions, and the upstreams that provide them.
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "cli/conformance/judge.h"
#include "cli/conformance/link.h"
#include "cli/conformance/nfs.h"
#include "cli/conformance/placed_reply.h"
#include "cli/conformance/upstream.h"
#include "cli/conformance/v2_calls.h"
#include "cli/conformance/visit.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/base/sockets.h"

namespace sluice::conformance {
namespace {

// Limits of version 2.
constexpr std::uint32_t kLeastWindow = 2;
constexpr std::uint32_t kLeastReceive = 1024;
constexpr std::uint32_t kLeastSegment = 4096;
/// Size of the longest Send by default. No client needs to accept longer ones (draft, section 4.3.2).
constexpr std::uint32_t kDefaultSendBytes = 4096;

void stamp(Bytes& message, std::uint32_t window, std::uint32_t granted) {
  xdr::store_u32(message.data() + 8, window << 16 | granted);
}

}  // namespace

void Responder::write(Visit& visit, Segments& chunk, std::span<const std::byte> bytes) {
  for (rpcrdma::Segment& segment : chunk) {
    segment.length = static_cast<std::uint32_t>(smaller_of<std::size_t>(segment.length, bytes.size()));
    if (segment.length == 0) continue;
    write(visit, segment, bytes.first(segment.length));
    bytes = bytes.subspan(segment.length);
  }
}

void Responder::write(Visit& visit, const rpcrdma::Segment& segment, std::span<const std::byte> bytes) {
  served(visit).end->write_remote(segment, bytes);
  ++served(visit).posted;
}

std::span<const std::byte> Responder::read(Visit& visit, const rpcrdma::Segment& segment) {
  ++served(visit).posted;
  return served(visit).end->read_remote(segment, segment.length);
}

void Responder::answer(const WaitingCall& call, std::span<const std::byte> reply, const Manner& manner) {
  Visit& visit = *call.visit;
  if (visit.ended) return;
  const std::uint32_t granted = manner.grant.value_or(grant_);
  RawCall header{.xid = call.xid(),
                 .credits = granted,
                 .writes = call.message.header.writes,
                 .reply = call.message.header.reply};
  PlacedReply placed = place_results(call.sight.rpc, reply, header.writes.size());
  if (manner.padded_results)
    for (Bytes& result : placed.results) result.resize(padded(result.size()));
  for (std::size_t i = 0; i < header.writes.size(); ++i) {
    const std::span<const std::byte> result = i < placed.results.size()
                                                  ? std::span<const std::byte>(placed.results[i])
                                                  : std::span<const std::byte>{};
    if (result.size() > bytes_in(header.writes[i])) return refuse(call, kErrChunk);
    write(visit, header.writes[i], result);
  }
  if (visit.talk.version == 2)
    reply_version_2(
        call, {.xid = call.xid(), .flags = v2::kResponse, .writes = header.writes, .reply = header.reply},
        placed.payload, manner);
  else
    reply_version_1(call, std::move(header), placed.payload, manner);
  settle(visit);
}

void Responder::reply_version_1(const WaitingCall& call, RawCall header, std::span<const std::byte> payload,
                                const Manner& manner) {
  Visit& visit = *call.visit;
  const bool fits = header.header().size() + payload.size() <= visit.talk.client_receive_bytes();
  const bool in_chunk = header.reply && (!fits || manner.always_reply_chunk);
  if (in_chunk ? payload.size() > bytes_in(*header.reply) : !fits) return refuse(call, kErrChunk);
  if (header.reply) write(visit, *header.reply, in_chunk ? payload : std::span<const std::byte>{});
  header.proc = in_chunk ? 1 : 0;
  judge_.answered(visit.talk, call.xid(), header.credits);
  send(visit, in_chunk ? header.header() : header.with(payload), manner.invalidate);
}

void Responder::serve(const WaitingCall& call, const Manner& manner) {
  ++served_;
  if (const auto result = result_of(call)) answer(call, *result, manner);
}

void Responder::answer_as_it_is(const WaitingCall& call, std::span<const std::byte> message,
                                rdma::Rkey invalidate) {
  if (call.visit->ended) return;
  judge_.answered(call.visit->talk, call.xid(), grant_);
  send(*call.visit, message, invalidate);
  settle(*call.visit);
}

void Responder::refuse(const WaitingCall& call, std::uint32_t code,
                       std::initializer_list<std::uint32_t> more) {
  if (call.visit->ended) return;
  judge_.answered(call.visit->talk, call.xid(), grant_);
  error(*call.visit, call.message.header, code, more);
  settle(*call.visit);
}

void Responder::error(Visit& visit, const RawCall& header, std::uint32_t code,
                      std::initializer_list<std::uint32_t> more) {
  if (visit.talk.version == 2 && code != kErrVers) {
    Bytes message = words({header.xid, 2, grant_ << 16, v2::kError, v2::kResponse, code});
    append(message, words(more));
    return send(visit, message);
  }
  // ERR_VERS on a connection of version 2 has the same form (D2-01).
  Bytes message = words({header.xid, header.version, grant_, 4, code});
  const bool fixed = visit.talk.version == 2 && visit.talk.v2.has_granted();
  if (code == kErrVers) append(message, words({fixed ? 2u : 1u, judge_.version()}));
  send(visit, message);
}

void Responder::send(Visit& visit, std::span<const std::byte> message, rdma::Rkey invalidate) {
  if (visit.talk.version == 2)
    return served(visit).outbox.push_back({{message.begin(), message.end()}, invalidate});
  judge_.sent(visit.talk, message);
  served(visit).end->send(message, invalidate);
  ++served(visit).posted;
}

// --- Version 2

Announcement Responder::usual_announcement() const {
  return {{kReceiveSize, words({receive_bytes_})}};
}

void Responder::greet(Visit& visit) {
  Bytes message = v2::Header{.xid = next_xid_++, .type = v2::kConnProp}.then(
      {static_cast<std::uint32_t>(announcement_.size())});
  for (const auto& [id, data] : announcement_) {
    append(message, words({id, static_cast<std::uint32_t>(data.size())}));
    append(message, data);
    message.resize(padded(message.size()));
    const std::uint32_t value = data.size() == 4 ? word_at(data, 0) : 0;
    // A client that cannot work with lower limits may ignore them (D2-20).
    if (id == kReceiveSize && value >= kLeastReceive) visit.talk.receive_bytes = value;
    if (id == kSegmentSize && value >= kLeastSegment) visit.talk.segment_bytes = value;
    if (id == kSegmentCount && value > 0) visit.talk.segments = value;
  }
  send(visit, message);
}

/// Sends messages as far as credits permit, and a grant if no other message conveys new credits to the
/// client.
void Responder::flush(Visit& visit) {
  Version2Conversation& talk = visit.talk.v2;
  const std::uint32_t window = larger_of(grant_, kLeastWindow);
  ServedVisit& own = served(visit);
  if (own.outbox.empty() && talk.has_granted() && talk.balance() >= 0 && talk.grant_due(window))
    own.outbox.push_back({v2::Header{.xid = 0, .type = v2::kNoMsg}.bytes()});
  while (!own.outbox.empty() && !own.ended && own.talk.version == 2) {
    Outgoing& next = own.outbox.front();
    if (talk.balance() < (v2::is_grant(next.bytes) ? 0 : 1)) return;
    const bool is_error = word_at(next.bytes, 3) == v2::kError;
    if (!next.as_it_is && !is_error) stamp(next.bytes, window, talk.offer(window));
    judge_.sent(visit.talk, next.bytes);
    own.end->send(next.bytes, next.invalidate);
    ++own.posted;
    own.outbox.pop_front();
  }
}

void Responder::send_as_it_is(Visit& visit, std::span<const std::byte> message) {
  served(visit).outbox.push_back({{message.begin(), message.end()}, {}, true});
}

void Responder::reply_version_2(const WaitingCall& call, v2::Header header,
                                std::span<const std::byte> payload, const Manner& manner) {
  Visit& visit = *call.visit;
  const auto chunk = std::exchange(header.reply, std::nullopt);
  const std::uint32_t limit = smaller_of(visit.talk.client_receive_bytes(), kDefaultSendBytes);
  const bool fits = header.bytes().size() + payload.size() <= limit;
  const bool in_chunk = chunk && payload.size() <= bytes_in(*chunk) &&
                        (manner.always_reply_chunk || (!fits && !manner.in_parts));
  judge_.answered(visit.talk, call.xid(), grant_);
  if (in_chunk || manner.echoed_reply_chunk) header.reply = chunk;
  if (header.reply) write(visit, *header.reply, in_chunk ? payload : std::span<const std::byte>{});
  if (!in_chunk) return send_parts(visit, header, payload, manner);
  header.type = v2::kNoMsg;
  send(visit, header.bytes(), manner.invalidate);
}

/// Sends the parts of a message one after the other. Only the last part has chunks.
void Responder::send_parts(Visit& visit, const v2::Header& last, std::span<const std::byte> payload,
                           const Manner& manner) {
  std::uint32_t limit = smaller_of(visit.talk.client_receive_bytes(), kDefaultSendBytes);
  if (manner.part_bytes != 0) limit = smaller_of(limit, manner.part_bytes);
  const v2::Header part{.xid = last.xid, .flags = last.flags | v2::kMore};
  const std::size_t before_last = last.bytes().size();
  // The last part keeps at least four octets.
  while (payload.size() > 4 && before_last + payload.size() > limit) {
    const std::size_t taken = smaller_of((limit - part.bytes().size()) & ~std::size_t{3}, payload.size() - 4);
    send(visit, part.with(payload.first(taken)));
    payload = payload.subspan(taken);
  }
  send(visit, last.with(payload), manner.invalidate);
}

// --- Upstreams

namespace {

constexpr std::uint32_t kLastFragment = 1u << 31;
constexpr std::size_t kChunkBytes = 65536;
constexpr std::uint32_t kProcedureUnavailable = 3;
constexpr std::uint16_t kFirstReservedPort = 600;  // those below are of well-known services
constexpr std::uint16_t kLastReservedPort = 1023;

struct SocketAddress {
  sockaddr_storage address{};
  socklen_t bytes = 0;
};

/// Parses an address and a port; an IPv6 address is in brackets. Throws LinkError.
SocketAddress parsed(const std::string& text) {
  const auto colon = text.rfind(':');
  const std::string host = text.substr(0, colon);
  const bool bracket = host.starts_with('[') && host.ends_with(']');
  const auto address = parse_address(bracket ? host.substr(1, host.size() - 2) : host);
  if (colon == std::string::npos || !address || bracket == is_mapped_ipv4(*address))
    throw LinkError(
        "--upstream has to be an IP address and a port, such as 127.0.0.1:2049 or [fe80::1%eth0]:2049.");
  SocketAddress to;
  to.bytes =
      socket_address(*address, static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1)), to.address);
  return to;
}

/// Binds a port below 1024, because many servers by default trust only those. Without the privilege, or if
/// all are in use, the kernel chooses a port.
void bind_reserved_port(int socket, bool is_ipv4) {
  const PeerAddress any = is_ipv4 ? PeerAddress::from_ipv4(0, 0, 0, 0) : PeerAddress{};
  for (std::uint16_t port = kLastReservedPort; port >= kFirstReservedPort; --port) {
    sockaddr_storage own;
    const socklen_t bytes = socket_address(any, port, own);
    if (::bind(socket, reinterpret_cast<const sockaddr*>(&own), bytes) == 0 || errno != EADDRINUSE) return;
  }
}

}  // namespace

void NullUpstream::send(std::span<const std::byte> message) {
  if (word_at(message, 1) != 0) return;
  replies_.push_back(
      words({word_at(message, 0), 1, 0, 0, 0, word_at(message, 5) == 0 ? 0 : kProcedureUnavailable}));
}

std::optional<Bytes> NullUpstream::receive() {
  if (replies_.empty()) return std::nullopt;
  Bytes reply = std::move(replies_.front());
  replies_.pop_front();
  return reply;
}

TcpUpstream::TcpUpstream(const std::string& address) {
  const SocketAddress to = parsed(address);
  socket_ = ::socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bind_reserved_port(socket_, to.address.ss_family == AF_INET);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to.address), to.bytes) != 0) {
    const int error = errno;
    ::close(socket_);
    throw LinkError("No server answers at " + address + " (" + std::strerror(error) + "): check --upstream.");
  }
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

TcpUpstream::~TcpUpstream() {
  ::close(socket_);
}

void TcpUpstream::send(std::span<const std::byte> message) {
  Bytes record = words({kLastFragment | static_cast<std::uint32_t>(message.size())});
  append(record, message);
  for (std::span<const std::byte> left = record; !left.empty();) {
    const ssize_t sent = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL);
    gone_ |= sent <= 0;
    if (gone_) return;
    left = left.subspan(static_cast<std::size_t>(sent));
  }
}

std::optional<Bytes> TcpUpstream::receive() {
  std::array<std::byte, kChunkBytes> chunk;
  while (!gone_) {
    const ssize_t got = ::recv(socket_, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    gone_ |= got <= 0;
    if (gone_) break;
    append(incoming_, std::span(chunk).first(static_cast<std::size_t>(got)));
  }
  while (incoming_.size() >= 4) {
    const std::uint32_t mark = word_at(incoming_, 0);
    const std::size_t bytes = mark & ~kLastFragment;
    if (incoming_.size() < 4 + bytes) break;
    append(record_, std::span(incoming_).subspan(4, bytes));
    incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(4 + bytes));
    if ((mark & kLastFragment) != 0) return std::exchange(record_, {});
  }
  return std::nullopt;
}

}  // namespace sluice::conformance
