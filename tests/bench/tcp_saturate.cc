// SPDX-License-Identifier: Apache-2.0
//
// tcp_saturate PORT MOUNT_PORT EXPORT PID: keeps an NFSv3 server over TCP busy, with more outstanding calls
// on several connections than it can answer, and prints the processor time that process PID spends on a call.
// So that the client needs less time than the server, replies are received and discarded, calls without data
// are sent many at a time, and the data of WRITEs is sent from one block of memory that stays in the cache.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "cli/bench/mount_client.h"
#include "dataplane/tcp/sockets.h"
#include "tests/bench/nfs_calls.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kLastFragment = 1u << 31;
constexpr std::size_t kConnections = 4;
constexpr std::size_t kReceiveBytes = 1u << 20;

class Connection {
 public:
  /// Connects to a local port. `data` follows each call that is submitted, and outlives this.
  explicit Connection(std::uint16_t port, std::span<const std::byte> data = {})
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)), data_(data) {
    sockaddr_storage address;
    const socklen_t bytes = tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 1), port, address);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), bytes) != 0)
      throw std::runtime_error("There is no server on port " + std::to_string(port) + ".");
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Makes one call and waits for its reply.
  Bytes transact(std::span<const std::byte> message) {
    submit(message);
    flush();
    while (!outgoing_.empty()) flush();
    Bytes record;
    for (bool last = false; !last;) {
      std::array<std::byte, 4> mark;
      receive_exactly(mark);
      last = (xdr::load_u32(mark.data()) & kLastFragment) != 0;
      const std::size_t before = record.size();
      record.resize(before + (xdr::load_u32(mark.data()) & ~kLastFragment));
      receive_exactly(std::span(record).subspan(before));
    }
    return record;
  }

  /// Queues one call. With data, all calls that are queued at a time have the same size.
  void submit(std::span<const std::byte> message) {
    const std::size_t at = outgoing_.size();
    head_bytes_ = 4 + message.size();
    outgoing_.resize(at + head_bytes_);
    xdr::store_u32(&outgoing_[at], kLastFragment | static_cast<std::uint32_t>(message.size() + data_.size()));
    std::memcpy(&outgoing_[at + 4], message.data(), message.size());
  }

  /// Sends as much of the queued calls as the socket takes.
  void flush() {
    if (outgoing_.empty()) return;
    if (!data_.empty()) return flush_with_data();
    const auto sent = ::send(socket_, outgoing_.data(), outgoing_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) outgoing_.erase(outgoing_.begin(), outgoing_.begin() + sent);
  }

  /// Receives and discards all available data. Returns the number of replies that it completed.
  std::uint32_t take_replies() {
    const auto got = ::recv(socket_, incoming_.data(), incoming_.size(), MSG_DONTWAIT);
    if (got == 0) throw std::runtime_error("The server has ended a connection.");
    std::uint32_t replies = 0;
    for (std::size_t at = 0; got > 0 && at < static_cast<std::size_t>(got);) {
      const std::size_t here = static_cast<std::size_t>(got) - at;
      if (left_ > 0) {  // bytes of a fragment
        const std::size_t passed = std::min(left_, here);
        left_ -= passed;
        at += passed;
        if (left_ == 0 && last_) ++replies;
        continue;
      }
      mark_[mark_bytes_++] = incoming_[at++];
      if (mark_bytes_ < mark_.size()) continue;
      mark_bytes_ = 0;
      left_ = xdr::load_u32(mark_.data()) & ~kLastFragment;
      last_ = (xdr::load_u32(mark_.data()) & kLastFragment) != 0;
    }
    return replies;
  }

 private:
  /// Sends heads from the queue, each followed by the data.
  void flush_with_data() {
    std::array<iovec, 64> pieces;
    std::size_t count = 0;
    std::size_t skip = sent_;
    const auto add = [&](std::byte* at, std::size_t bytes) {
      const std::size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (skipped < bytes) pieces[count++] = {at + skipped, bytes - skipped};
    };
    for (std::size_t at = 0; at < outgoing_.size() && count + 2 <= pieces.size(); at += head_bytes_) {
      add(&outgoing_[at], head_bytes_);
      add(const_cast<std::byte*>(data_.data()), data_.size());
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const auto sent = ::sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) return;
    sent_ += static_cast<std::size_t>(sent);
    const std::size_t whole = sent_ / (head_bytes_ + data_.size());
    sent_ -= whole * (head_bytes_ + data_.size());
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(whole * head_bytes_));
  }

  void receive_exactly(std::span<std::byte> bytes) {
    if (::recv(socket_, bytes.data(), bytes.size(), MSG_WAITALL) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("The server has ended a connection.");
  }

  int socket_;
  const std::span<const std::byte> data_;
  Bytes outgoing_;              ///< record marks and calls without their data
  std::size_t head_bytes_ = 0;  ///< size of the last call in outgoing_
  std::size_t sent_ = 0;        ///< with data: bytes of the first queued call and its data that were sent
  Bytes incoming_ = Bytes(kReceiveBytes);
  std::array<std::byte, 4> mark_{};
  std::size_t mark_bytes_ = 0;
  std::size_t left_ = 0;
  bool last_ = false;
};

struct Server {
  std::uint16_t port = 0;
  pid_t pid = 0;
  Bytes file;
} server;

template <const CallShape& kShape>
double server_ns_per_call(double seconds) {
  constexpr std::uint32_t kDepth = kShape.read_bytes + kShape.write_bytes > 65536 ? 4 : 64;  // per connection
  const ProcessorTime used(server.pid);
  Bytes message = call_message(kShape, server.file);
  const Bytes data(kShape.write_bytes, std::byte{1});
  std::uint32_t number = 0;
  std::array<std::unique_ptr<Connection>, kConnections> connections;
  for (auto& connection : connections) connection = std::make_unique<Connection>(server.port, data);
  expect_done(connections[0]->transact(message), kShape);
  const auto submit = [&](Connection& connection) {
    renumber(message, kShape, ++number);
    connection.submit(message);
  };
  for (auto& connection : connections)
    for (std::uint32_t i = 0; i < kDepth; ++i) submit(*connection);

  std::uint32_t calls = 0;
  const auto turn = [&](bool more) {
    for (auto& connection : connections) {
      const std::uint32_t replies = connection->take_replies();
      calls += replies;
      for (std::uint32_t i = 0; more && i < replies; ++i) submit(*connection);
      connection->flush();
    }
  };
  const double used_before = used.ns();
  const std::uint64_t begin = now_ns();
  while (static_cast<double>(now_ns() - begin) < seconds * 1e9) turn(true);
  if (calls == 0) throw std::runtime_error("The server has answered no call.");
  const double ns = (used.ns() - used_before) / calls;
  while (calls < number) turn(false);  // lets the server finish before the next measurement
  return ns;
}

constexpr Side kSides[] = {
    {"null", server_ns_per_call<kNull>},       {"getattr", server_ns_per_call<kGetAttr>},
    {"read4k", server_ns_per_call<kRead4k>},   {"read1m", server_ns_per_call<kRead1m>},
    {"write4k", server_ns_per_call<kWrite4k>}, {"write1m", server_ns_per_call<kWrite1m>},
};

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  if (argc != 5) return std::fprintf(stderr, "tcp_saturate PORT MOUNT_PORT EXPORT PID\n"), 2;
  try {
    pin(kClientCpu);
    server.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    server.pid = std::atoi(argv[4]);
    const Bytes root = mount_root("127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[2])), argv[3]);
    Connection connection(server.port);
    server.file = make_file(root, [&](std::span<const std::byte> call) { return connection.transact(call); });
    return serve(kSides);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
