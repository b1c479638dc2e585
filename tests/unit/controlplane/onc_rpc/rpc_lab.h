// SPDX-License-Identifier: Apache-2.0
//
// Shared by tests of RPC services: polls their parts under a clock that only the test advances, and provides
// clients and RPC servers that the test controls.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/onc_rpc/rpc_link.h"
#include "dataplane/base/polled_service.h"
#include "dataplane/rpc/message.h"
#include "dataplane/tcp/sockets.h"
#include "dataplane/xdr/cursor.h"
#include "tests/unit/listener.h"
#include "tests/unit/log/captured_log.h"

namespace sluice::onc_rpc::lab {

using Bytes = std::vector<std::byte>;

inline constexpr std::uint64_t kStartNs = 1'000'000'000'000;
inline constexpr std::chrono::seconds kPatience{60};  ///< limit for expected events, far longer than they
                                                      ///< take

inline Bytes encoded(const std::function<void(xdr::Writer&)>& encode) {
  Bytes room(64u << 10);
  xdr::Writer writer(room);
  encode(writer);
  EXPECT_TRUE(writer.ok());
  room.resize(writer.position());
  return room;
}

inline Bytes call_message(std::uint32_t xid, const Procedure& procedure, const Bytes& arguments = {}) {
  return encoded([&](xdr::Writer& writer) {
    rpc::encode_call(writer, {.xid = rpc::Xid{xid},
                              .program = procedure.program,
                              .version = procedure.version,
                              .procedure = procedure.procedure,
                              .credential = {},
                              .verifier = {}});
    writer.opaque_fixed(arguments);
  });
}

inline Bytes record(const Bytes& message) {
  Bytes marked(4 + message.size());
  xdr::store_u32(marked.data(), 1u << 31 | static_cast<std::uint32_t>(message.size()));
  std::copy(message.begin(), message.end(), marked.begin() + 4);
  return marked;
}

/// A non-blocking stream socket of the test.
class Stream {
 public:
  explicit Stream(int fd) : fd_(fd) { ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK); }
  ~Stream() { close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void end_sending() { ::shutdown(fd_, SHUT_WR); }
  /// Resets the connection, as if its process had died with unread data.
  void abort() {
    const linger at_once{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close();
  }
  void send(const Bytes& bytes) {
    ASSERT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  /// Receives all available data. Returns false if the peer has closed the connection.
  bool receive() {
    std::byte room[4096];
    for (;;) {
      const ssize_t bytes = ::recv(fd_, room, sizeof room, 0);
      if (bytes < 0) return errno == EAGAIN;
      if (bytes == 0) return false;
      received_.insert(received_.end(), room, room + bytes);
    }
  }
  /// Returns the next whole record, without its mark.
  std::optional<Bytes> next() {
    if (received_.size() < 4) return std::nullopt;
    const std::size_t bytes = xdr::load_u32(received_.data()) & ~(1u << 31);
    if (received_.size() < 4 + bytes) return std::nullopt;
    const auto begin = received_.begin() + 4;
    Bytes message(begin, begin + static_cast<std::ptrdiff_t>(bytes));
    received_.erase(received_.begin(), begin + static_cast<std::ptrdiff_t>(bytes));
    return message;
  }

 private:
  int fd_;
  Bytes received_;
};

/// Connects a client at 127.0.0.`last`.
inline std::unique_ptr<Stream> connect_to(std::uint16_t port, std::uint8_t last = 1, int receive_bytes = 0) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_bytes > 0) ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
  sockaddr_storage address;
  socklen_t bytes = tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, last), 0, address);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  bytes = tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 1), port, address);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), bytes), 0) << std::strerror(errno);
  return std::make_unique<Stream>(fd);
}

inline constexpr PeerAddress kFour = PeerAddress::from_ipv4(127, 0, 0, 1);
inline constexpr PeerAddress kSix = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

/// An RPC server on a stream socket.
class FakeServer {
 public:
  struct Call {
    std::size_t stream = 0;
    std::uint32_t xid = 0;
    Procedure procedure;
    Bytes arguments;
    Bytes credential;  ///< body of the credential
    /// Returns the first argument as a string.
    std::string path() const { return std::string(xdr::Reader(arguments).string(1024)); }
  };

  /// Listens on any port of 127.0.0.1 or ::1.
  explicit FakeServer(int family = AF_INET) : FakeServer(family == AF_INET6 ? kSix : kFour, 0) {}
  /// Listens on `port`; zero selects any port.
  FakeServer(const PeerAddress& here, std::uint16_t port)
      : listener_(port == 0 ? sluice::lab::listen_anywhere(here) : sluice::lab::listen_at(here, port)) {
    EXPECT_GE(listener_, 0) << "port " << port << " is taken";
  }
  explicit FakeServer(const std::string& path)
      : path_(path), listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    ::unlink(path.c_str());
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
  }
  ~FakeServer() {
    stop();
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::uint16_t port() const { return tcp::local_port(listener_); }
  std::size_t connections() const { return streams_.size(); }
  /// Returns the address of the peer of the last connection.
  PeerAddress peer() const { return peer_; }
  /// Refuses connections from here on.
  void stop() {
    if (listener_ >= 0) ::close(listener_);
    listener_ = -1;
    end_connections();
  }
  void end_connections() {
    for (const auto& stream : streams_) stream->close();
  }

  void pump() {
    sockaddr_storage from{};
    socklen_t bytes = sizeof from;
    for (int fd;
         listener_ >= 0 && (fd = ::accept(listener_, reinterpret_cast<sockaddr*>(&from), &bytes)) >= 0;) {
      streams_.push_back(std::make_unique<Stream>(fd));
      peer_ = tcp::peer_address(from);
      bytes = sizeof from;
    }
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      streams_[i]->receive();
      while (const auto message = streams_[i]->next()) {
        xdr::Reader reader(*message);
        rpc::CallHeader header;
        ASSERT_EQ(rpc::decode_call(reader, header), rpc::CallDecode::Ok);
        calls.push_back({i,
                         static_cast<std::uint32_t>(header.xid),
                         {header.program, header.version, header.procedure},
                         Bytes(reader.rest().begin(), reader.rest().end()),
                         Bytes(header.credential.body.begin(), header.credential.body.end())});
      }
    }
  }
  void answer(const Call& call, const Bytes& results, rpc::AcceptStat stat = rpc::AcceptStat::Success) {
    Bytes message =
        encoded([&](xdr::Writer& writer) { rpc::encode_accepted(writer, rpc::Xid{call.xid}, {}, stat); });
    message.insert(message.end(), results.begin(), results.end());
    streams_[call.stream]->send(record(message));
  }

  /// Denies the call and requests a stronger credential.
  void deny(const Call& call) {
    streams_[call.stream]->send(record(encoded([&](xdr::Writer& writer) {
      rpc::encode_auth_error(writer, rpc::Xid{call.xid}, rpc::AuthStat::TooWeak);
    })));
  }

  std::vector<Call> calls;  ///< in order of arrival; the test may remove them

 private:
  std::string path_;
  int listener_;
  PeerAddress peer_{};
  std::vector<std::unique_ptr<Stream>> streams_;
};

/// Polls `part` until `done`, without advancing the clock.
template <typename Part>
void turn_until(Part& part, std::uint64_t now_ns, const std::function<bool()>& done) {
  constexpr std::uint64_t kPollNs = 2'000'000;
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  PollSet set;
  while (!done()) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "it never came";
    set.clear();
    part.prepare(set);
    set.wake_at(now_ns + kPollNs);
    set.wait(now_ns);
    part.poll(set, now_ns);
  }
}

/// Polls `part` `count` times, to check that nothing happens.
template <typename Part>
void turns(Part& part, std::uint64_t now_ns, int count = 20) {
  turn_until(part, now_ns, [&] { return count-- == 0; });
}

}  // namespace sluice::onc_rpc::lab
