// SPDX-License-Identifier: Apache-2.0
//
// The bench for version 2: headers built by hand, and a raw peer that counts credits itself.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/conformance/lab.h"
#include "tests/conformance/raw_call.h"

namespace sluice::conformance::v2 {

inline std::uint32_t handle(const rpcrdma::Segment& segment) {
  return static_cast<std::uint32_t>(segment.handle);
}

inline Bytes null_call(std::uint32_t xid, std::uint32_t credit = 0x00400001) {
  return Header{.xid = xid, .credit = credit}.with(test_call(xid, 0));
}

/// Returns the accept_stat of a reply without chunks.
inline std::uint32_t accept_stat(const Bytes& reply) {
  return word_at(reply, 9 + 5);
}
inline bool is_success(const Bytes& message, std::uint32_t xid) {
  return message.size() >= 60 && word_at(message, 0) == xid && word_at(message, 3) == kMsg &&
         word_at(message, 4) == kResponse && word_at(message, 9) == xid && accept_stat(message) == 0;
}

/// Builds an accepted reply of the raw server without results.
inline Bytes success(std::uint32_t xid, std::uint32_t credit = 0x00400001) {
  return Header{.xid = xid, .credit = credit, .flags = kResponse}.with(words({xid, 1, 0, 0, 0, 0}));
}
inline Bytes error(std::uint32_t xid, std::uint32_t code, std::initializer_list<std::uint32_t> body = {}) {
  Bytes out = Header{.xid = xid, .credit = 0x00400000, .type = kError, .flags = kResponse}.then({code});
  append(out, words(body));
  return out;
}
inline Bytes grant(std::uint16_t credits) {
  return Header{.xid = 0, .credit = 0x00400000u | credits, .type = kNoMsg}.bytes();
}

/// Our engine as server.
class Server : public ServerLab {
 public:
  static LabOptions defaults() {
    LabOptions chosen;
    chosen.connection.max_version = 2;
    chosen.raw_receive_bytes = 65536;
    chosen.raw_receives = 512;
    return chosen;
  }
  explicit Server(const LabOptions& chosen = defaults()) : ServerLab(chosen) {}

  /// Returns the received messages except properties and grants.
  std::vector<Bytes> answers() const {
    std::vector<Bytes> result;
    for (const Received& received : peer->inbox)
      if (!is_grant(received.bytes) && word_at(received.bytes, 3) != kConnProp)
        result.push_back(received.bytes);
    return result;
  }
  /// Sends the client's first message, which grants the server `credits`.
  void hello(std::uint16_t credits = 256) {
    peer->send(Header{.xid = 1, .credit = 0x00400000u | credits, .type = kConnProp}.then({0}));
    settle();
    peer->inbox.clear();
  }
  std::vector<Bytes> ask(std::span<const std::byte> message) {
    exchange(message);
    return answers();
  }
  Bytes answer(std::span<const std::byte> message) {
    const auto all = ask(message);
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? Bytes{} : all.front();
  }
  bool alive2(std::uint32_t xid = 0x77000001) { return is_success(answer(null_call(xid)), xid); }
  rpcrdma::Counters& counters() { return engine->counters(); }
  void pass(std::uint64_t ns) {
    now_ns += ns;
    for (int i = 0; i < 40; ++i) {
      now_ns += 2'000'000;
      settle(4);
    }
  }
};

/// Our engine as client.
class Client : public ClientLab {
 public:
  static LabOptions defaults() {
    LabOptions chosen;
    chosen.connection.max_version = 2;
    chosen.raw_receive_bytes = 65536;
    chosen.raw_receives = 512;
    return chosen;
  }
  explicit Client(const LabOptions& chosen = defaults()) : ClientLab(chosen) {}

  /// Has the server confirm version 2 and grant credits.
  void confirm(std::uint16_t credits = 200) {
    peer->send(grant(credits));
    settle();
    peer->inbox.clear();
  }
  std::vector<Bytes> sent() const {
    std::vector<Bytes> result;
    for (const Received& received : peer->inbox)
      if (!is_grant(received.bytes)) result.push_back(received.bytes);
    return result;
  }
  void answer(std::span<const std::byte> message) {
    peer->inbox.clear();
    peer->send(message);
    settle();
  }
  void pass(std::uint64_t ns) {
    now_ns += ns;
    for (int i = 0; i < 40; ++i) {
      now_ns += 2'000'000;
      settle(4);
    }
  }
};

}  // namespace sluice::conformance::v2
