// SPDX-License-Identifier: Apache-2.0
//
// The connection to the server under test, and one test against the server.
#include "cli/conformance/trial.h"

#include <array>
#include <ctime>
#include <string>

#include "cli/conformance/link.h"
#include "cli/conformance/nfs.h"

namespace sluice::conformance {
namespace {

/// Size of a Receive in both versions. It exceeds by far the size that a server may send before it has our
/// limit.
constexpr std::uint32_t kReceiveBytes = 8192;
constexpr std::uint32_t kTrialReceives = 256;
/// Time limit for establishing a connection. A lost request is retransmitted after 4.3 s (rdma_cm).
constexpr std::uint64_t kPatienceNs = 30'000'000'000;
/// Time during which a refused connection is retried. Servers limit the number and the rate of a client's
/// connections, and a closed connection may count a little longer.
constexpr std::uint64_t kRefusalNs = 8'000'000'000;
constexpr std::uint64_t kBetweenAttemptsNs = 100'000'000;

}  // namespace

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

Link::Link(rdma::Device& device, rdma::ConnectionManager& manager, std::uint16_t port)
    : manager_(manager), port_(port), end_(device, kReceiveBytes, kTrialReceives) {}

Link::~Link() {
  end_.owned_qp.reset();
}

void Link::connect(const std::optional<rpcrdma::PrivateData>& own) {
  const std::uint64_t give_up = now_ns() + kRefusalNs;
  while (!try_connect(own)) {
    if (now_ns() > give_up)
      throw LinkError("The server refused the connection on port " + std::to_string(port_) +
                      ": check the port, and its limits for connections.");
    wait(kBetweenAttemptsNs, [] { return false; });
  }
}

bool Link::try_connect(const std::optional<rpcrdma::PrivateData>& own) {
  disconnect();
  established_ = rejected_ = lost_ = false;
  server_data_.reset();
  end_.forget();
  seen_ = 0;
  end_.owned_qp = end_.make_queue_pair();
  std::array<std::byte, rpcrdma::kPrivateDataBytes> data{};
  if (own) data = rpcrdma::encode_private_data(*own);
  id_ = manager_.connect(*end_.owned_qp, port_,
                         own ? std::span<const std::byte>(data) : std::span<const std::byte>{});
  if (!id_)
    throw LinkError(
        "No connection can be started: all links of the device are in use. End other clients first.");
  wait(kPatienceNs, [this] {
    poll_manager();
    return established_ || rejected_ || lost_;
  });
  if (established_) return true;
  if (!rejected_ && !lost_)
    throw LinkError("The server does not answer on port " + std::to_string(port_) +
                    ": check its address, and that it listens for RDMA.");
  id_.reset();
  return false;
}

void Link::disconnect() {
  if (id_) {
    if (!lost_) manager_.disconnect(*id_);
    wait(kFarewellNs, [this] {
      poll_manager();
      return lost_;
    });
  }
  id_.reset();
  end_.owned_qp.reset();
}

void Link::poll_manager() {
  rdma::CmEvent events[8];
  const std::size_t count = manager_.poll_events(events);
  for (const rdma::CmEvent& event : std::span(events, count)) {
    if (event.id != id_) continue;
    if (event.type == rdma::CmEventType::Rejected) rejected_ = true;
    if (event.type == rdma::CmEventType::Disconnected) lost_ = true;
    if (event.type == rdma::CmEventType::Established) {
      established_ = true;
      server_data_ = rpcrdma::decode_private_data({event.private_data, event.private_data_bytes});
    }
  }
}

void Link::turn() {
  end_.poll();
  if (end_.inbox.size() < seen_) seen_ = 0;
  if (end_.inbox.size() > seen_) arrived(end_.inbox, seen_);
  seen_ = end_.inbox.size();
  if (turns_++ % kTurnsPerManager == 0) poll_manager();
  other_side();
}

const char* Link::why_lost() const {
  return end_.failed ? rdma::to_string(end_.first_error) : "the server ended it";
}

bool Link::wait(std::uint64_t limit_ns, FunctionRef<bool()> done) {
  const std::uint64_t end = now_ns() + limit_ns;
  while (!done()) {
    if (now_ns() > end) return false;
    turn();
  }
  return true;
}

// --- Tests

namespace {

constexpr std::size_t kHistoryKept = 200;
constexpr std::uint16_t kCreditsForServer = 200;

}  // namespace

void Trial::connect(const std::optional<rpcrdma::PrivateData>& own) {
  link_.connect(own);
  version_ = 1;
  largest_ = own ? own->receive_bytes : 1024;
  granted_ = 0;
  read_ = 0;
  refused_ = false;
  heard_.clear();
  history_.push_back(own ? "connected, with private data" : "connected");
}

void Trial::connect_v2(const std::optional<rpcrdma::PrivateData>& own) {
  connect(own);
  const std::uint32_t xid = next_xid();
  open_v2(v2::Header{.xid = xid, .credit = 0x00400000u | kCreditsForServer, .type = v2::kConnProp}.then({0}));
}

void Trial::open_v2(std::span<const std::byte> first) {
  const std::vector<Received>& inbox = link_.end().inbox;
  version_ = 2;
  granted_ = 1;
  send(first);
  const bool heard = link_.wait(limits_.answer_ns, [&] { return read_ < inbox.size() || lost(); });
  if (!heard || lost()) throw Skipped("The server does not answer a first message of version 2.");
  const Bytes& message = inbox[read_].bytes;
  if (word_at(message, 3) == v2::kError && word_at(message, 4) == 1)
    throw Skipped("The server does not support version 2.");
  expect(link_.wait(limits_.answer_ns,
                    [&] {
                      take_control();
                      return granted_ > 0 || read_ < inbox.size() || lost();
                    }) &&
             !lost(),
         "credits with the first messages of the server (V2-010)");
}

void Trial::note(const char* what, std::span<const std::byte> message) {
  if (history_.size() == kHistoryKept) history_.push_back("(more messages are not shown)");
  if (history_.size() > kHistoryKept) return;
  history_.push_back(shown(what, message));
}

void Trial::send(std::span<const std::byte> message) {
  if (version_ == 2) {
    expect(link_.wait(limits_.answer_ns, [this] { return granted_ > 0 || lost() || (next(), false); }),
           "credits to go on with (V2-036)");
    --granted_;
  }
  note("sent", message);
  link_.end().send(message);
}

void Trial::send_beyond_credits(std::span<const std::byte> message) {
  link_.end().send(message);
}

void Trial::check_v1(const Received& received) {
  const Bytes& message = received.bytes;
  const std::uint32_t proc = word_at(message, 3);
  expect(message.size() >= 20, "no message of the server is shorter than ERR_CHUNK (V1-008)");
  expect(proc == 0 || proc == 1 || proc == 4,
         "the server sends RDMA_MSG, RDMA_NOMSG and RDMA_ERROR alone (V1-019)");
  expect(word_at(message, 2) != 0, "no message grants zero credits (V1-042)");
  expect(message.size() <= largest_, "no message is longer than the receiver's threshold (V1-009, V1-062)");
  expect(!received.remote_invalidate, "no remote invalidation without an announcement (V1-150)");
  if (proc == 4) {
    refused_ = true;
    return;
  }
  expect(message.size() >= 28 && word_at(message, 1) == 1, "replies are of version 1 (V1-004)");
  expect(word_at(message, 4) == 0, "a reply has no Read list (V1-090)");
}

void Trial::take(const Bytes& message) {
  note("got ", message);
  heard_.push_back(message);
  refused_ |= word_at(message, 3) == v2::kError;
  if (word_at(message, 3) != v2::kError) granted_ += word_at(message, 2) & 0xffff;
  ++read_;
}

/// Handles grants and properties up to the next message that is neither.
void Trial::take_control() {
  const auto& inbox = link_.end().inbox;
  while (read_ < inbox.size()) {
    const Bytes& message = inbox[read_].bytes;
    if (!v2::is_grant(message) && word_at(message, 3) != v2::kConnProp) return;
    take(message);
  }
}

std::optional<Bytes> Trial::next() {
  const auto& inbox = link_.end().inbox;
  if (version_ == 2) take_control();
  if (read_ == inbox.size()) return std::nullopt;
  const Received& received = inbox[read_];
  if (version_ == 2) {
    take(received.bytes);
    return received.bytes;
  }
  ++read_;
  note("got ", received.bytes);
  check_v1(received);
  return received.bytes;
}

Bytes Trial::answer() {
  std::optional<Bytes> message;
  link_.wait(limits_.answer_ns, [&] { return (message = next()) || lost(); });
  if (message) return *message;
  if (lost() && refused_)
    throw EndedAfterwards(std::string("After an error the server ended the connection (") + link_.why_lost() +
                          ").");
  if (lost())
    throw Failure(std::string("The connection ended instead of an answer (") + link_.why_lost() + ").");
  throw Failure("There was no answer in time.");
}

std::size_t Trial::overheard() {
  std::size_t count = 0;
  link_.wait(limits_.quiet_ns, [&] {
    if (next()) ++count;
    return lost();
  });
  return count;
}

void Trial::expect_silence(std::span<const std::byte> message) {
  send(message);
  expect_alive();
  expect(overheard() == 0, "no answer to this message");
}

void Trial::expect_alive() {
  const std::uint32_t xid = next_xid();
  const Bytes reply = ask(version_ == 1 ? null_v1(xid) : null_v2(xid));
  expect(word_at(reply, 0) == xid, "the next message answers the NULL call that followed");
  const Bytes payload = version_ == 1 ? read_v1(reply).payload : read_v2(reply).payload;
  expect(word_at(payload, 0) == xid && accept_stat_of(payload) == 0, "a NULL call succeeds");
}

bool Trial::ends() {
  return link_.wait(limits_.answer_ns, [this] { return (next(), lost()); });
}

void Trial::wait(std::uint64_t limit_ns) {
  link_.wait(limit_ns, [this] { return lost(); });
}

bool Trial::lost() const {
  return link_.lost();
}

const std::optional<rpcrdma::PrivateData>& Trial::server_data() const {
  return link_.server_data();
}

bool Trial::invalidated() const {
  for (const Received& received : link_.end().inbox)
    if (received.remote_invalidate) return true;
  return false;
}

Exposed Trial::readable(std::size_t bytes, std::uint32_t seed) {
  const Exposed memory = link_.end().expose(bytes, rdma::kRemoteRead);
  fill_pattern(memory.bytes, seed);
  return memory;
}

Exposed Trial::writable(std::size_t bytes) {
  const Exposed memory = link_.end().expose(bytes, rdma::kRemoteWrite);
  fill(memory.bytes, std::byte{0xA5});
  return memory;
}

}  // namespace sluice::conformance
