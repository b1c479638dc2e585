// SPDX-License-Identifier: Apache-2.0
//
// An upstream server that the test controls, including its faults: TCP on 127.0.0.1 or another address, in
// the test's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/conformance/lab.h"

namespace sluice::tcp_upstream_test {

using conformance::append;
using conformance::Bytes;
using conformance::word_at;
using conformance::words;

Bytes pattern(std::size_t bytes, std::uint32_t seed);
/// Returns a record of RFC 5531, section 11, with one fragment, the last.
Bytes record(std::span<const std::byte> message);
Bytes fragment(std::span<const std::byte> part, bool last);
/// Returns an accepted reply with these results.
Bytes success(std::uint32_t xid, const Bytes& results = {});
/// Offset of the results, or the arguments, of an RPC message with empty or AUTH_NONE credentials.
inline constexpr std::size_t kResultsAt = 24;
inline constexpr std::size_t kArgumentsAt = 40;

class FakeUpstream {
 public:
  /// Listens at an address of this host; `port` zero selects any port.
  explicit FakeUpstream(const PeerAddress& here = PeerAddress::from_ipv4(127, 0, 0, 1),
                        std::uint16_t port = 0);
  ~FakeUpstream();

  std::uint16_t port() const { return port_; }
  /// Accepts connections, receives, and sends queued data.
  void poll();
  /// Refuses connections until reopen().
  void shut();
  void reopen();

  struct Call {
    std::size_t connection = 0;
    Bytes message;
    std::uint32_t xid() const { return word_at(message, 0); }
  };
  /// Returns the immediate answer to a call; an empty one leaves the call unanswered.
  std::function<Bytes(const Call&)> answer;
  std::vector<Call> calls;  ///< all messages received, including replies to the upstream's own calls

  std::size_t connections() const { return connections_.size(); }  ///< accepted so far
  bool open(std::size_t connection) const { return connections_[connection].socket >= 0; }
  std::uint16_t peer_port(std::size_t connection) const { return connections_[connection].peer_port; }
  void send(std::size_t connection, std::span<const std::byte> bytes);
  void close(std::size_t connection);
  bool reads = true;  ///< false: receives no bytes

 private:
  struct Connection {
    int socket = -1;
    std::uint16_t peer_port = 0;
    Bytes in;
    Bytes out;
  };
  void listen();
  void parse(std::size_t connection);

  int listener_ = -1;
  PeerAddress here_;
  std::uint16_t port_;
  std::vector<Connection> connections_;
};

}  // namespace sluice::tcp_upstream_test
