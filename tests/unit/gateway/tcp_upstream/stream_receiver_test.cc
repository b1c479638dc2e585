// SPDX-License-Identifier: Apache-2.0
#include "dataplane/tcp/streams.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <vector>

namespace sluice::tcp {
namespace {

constexpr int kMostPolls = 20'000;

using Place = std::array<std::byte, 32>;

/// A receiving connection and its peer.
class Connection {
 public:
  Connection() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_.data()), 0); }
  ~Connection() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  int socket() const { return ends_[0]; }
  void peer_sends(std::size_t bytes, std::byte with) const {
    const std::vector<std::byte> data(bytes, with);
    EXPECT_EQ(::send(ends_[1], data.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  void peer_ends() const { ::shutdown(ends_[1], SHUT_WR); }
  void reset() const { ::shutdown(ends_[0], SHUT_RDWR); }

 private:
  std::array<int, 2> ends_{};
};

struct Receiving : testing::TestWithParam<UringFeatures> {
  void poll() {
    ring.poll([&](void*, Uring::Kind kind, const Uring::Completion& end) {
      const auto result =
          kind == Uring::kReceivedAgain ? receiver.on_received_again(end) : receiver.on_received(end);
      if (!result) return;
      results.push_back(*result);
      if (then) then();
    });
  }
  void polls() {
    for (int i = 0; i < 100; ++i) poll();
  }
  bool gets(std::size_t count) {
    for (int i = 0; i < kMostPolls && results.size() < count; ++i) poll();
    return results.size() == count;
  }
  bool ends() {
    for (int i = 0; i < kMostPolls && receiver.busy(); ++i) poll();
    return !receiver.busy();
  }
  static bool is_filled(std::span<const std::byte> place, std::byte with) {
    return std::all_of(place.begin(), place.end(), [&](std::byte one) { return one == with; });
  }

  alignas(8) int target = 0;
  Uring ring{8, GetParam()};
  StreamReceiver receiver{ring, &target};
  Place first{};
  Place second{};
  std::vector<int> results;
  std::function<void()> then;  ///< called with each result
};
INSTANTIATE_TEST_SUITE_P(StreamReceiver, Receiving,
                         testing::Values(UringFeatures::all(),
                                         UringFeatures::all().without(UringFeature::multishot_receive),
                                         UringFeatures()),
                         [](const auto& with) { return "with_" + std::to_string(with.param.bits()); });

TEST_P(Receiving, bytes_go_where_they_are_wanted_next) {
  const Connection connection;
  receiver.receive(connection.socket(), first);
  polls();
  EXPECT_TRUE(results.empty());
  connection.peer_sends(10, std::byte{1});
  ASSERT_TRUE(gets(1));
  EXPECT_FALSE(receiver.asked());
  receiver.receive(connection.socket(), second);
  connection.peer_sends(20, std::byte{2});
  ASSERT_TRUE(gets(2));
  EXPECT_EQ(results, (std::vector{10, 20}));
  EXPECT_TRUE(is_filled(std::span(first).first(10), std::byte{1}));
  EXPECT_TRUE(is_filled(std::span(first).subspan(10), std::byte{0}));
  EXPECT_TRUE(is_filled(std::span(second).first(20), std::byte{2}));
  connection.peer_ends();
  receiver.receive(connection.socket(), first);
  ASSERT_TRUE(gets(3));
  EXPECT_EQ(results.back(), 0);
  EXPECT_FALSE(receiver.busy());
}

TEST_P(Receiving, bytes_wait_in_the_socket_while_none_are_wanted) {
  const Connection connection;
  receiver.receive(connection.socket(), first);
  connection.peer_sends(10, std::byte{1});
  ASSERT_TRUE(gets(1));
  connection.peer_sends(20, std::byte{2});
  polls();
  EXPECT_EQ(results.size(), 1u);
  EXPECT_TRUE(is_filled(std::span(first).subspan(10), std::byte{0}));
  receiver.receive(connection.socket(), second);
  ASSERT_TRUE(gets(2));
  EXPECT_EQ(results.back(), 20);
  EXPECT_TRUE(is_filled(std::span(second).first(20), std::byte{2}));
}

// The kernel finds no second buffer and ends its operation before it gets the next one.
TEST_P(Receiving, more_bytes_than_there_is_room_for_come_in_parts) {
  const Connection connection;
  std::vector<std::byte> all(100);
  std::size_t had = 0;
  const auto next = [&] { receiver.receive(connection.socket(), std::span(all).subspan(had, 10)); };
  then = [&] {
    had += static_cast<std::size_t>(results.back());
    if (had < all.size()) next();
  };
  connection.peer_sends(all.size(), std::byte{5});
  next();
  ASSERT_TRUE(gets(10));
  EXPECT_EQ(had, all.size());
  EXPECT_TRUE(is_filled(all, std::byte{5}));
}

TEST_P(Receiving, what_has_to_come_together_is_taken_by_nobody_else) {
  const Connection connection;
  receiver.receive(connection.socket(), first);
  connection.peer_sends(10, std::byte{1});
  ASSERT_TRUE(gets(1));
  receiver.receive_all(connection.socket(), std::span(second).first(30));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(results.size(), 1u);
    connection.peer_sends(10, std::byte{2});
    polls();
  }
  ASSERT_TRUE(gets(2));
  EXPECT_EQ(results.back(), 30);
  EXPECT_TRUE(is_filled(std::span(second).first(30), std::byte{2}));
  EXPECT_TRUE(is_filled(std::span(first).subspan(10), std::byte{0}));
  receiver.receive(connection.socket(), first);
  connection.peer_sends(5, std::byte{3});
  ASSERT_TRUE(gets(3));
  EXPECT_EQ(results.back(), 5);
}

TEST_P(Receiving, bytes_that_come_when_a_connection_is_given_up_are_nobodys) {
  const Connection connection;
  receiver.receive(connection.socket(), first);
  poll();
  connection.peer_sends(10, std::byte{1});
  receiver.stop();
  connection.reset();
  EXPECT_TRUE(receiver.busy()) << "the socket must stay open";
  ASSERT_TRUE(ends());
  EXPECT_TRUE(results.empty());
}

// Bytes of the second connection must not be stored in the buffer that the first connection used.
TEST_P(Receiving, the_next_connection_has_a_place_of_its_own) {
  {
    const Connection connection;
    receiver.receive(connection.socket(), first);
    poll();
    receiver.stop();
    connection.reset();
    ASSERT_TRUE(ends());
  }
  const Connection connection;
  receiver.receive(connection.socket(), second);
  connection.peer_sends(20, std::byte{2});
  ASSERT_TRUE(gets(1));
  EXPECT_EQ(results, std::vector{20});
  EXPECT_TRUE(is_filled(std::span(second).first(20), std::byte{2}));
  EXPECT_TRUE(is_filled(first, std::byte{0}));
}

TEST_P(Receiving, one_operation_serves_a_whole_connection) {
  if (!ring.features().has(UringFeature::multishot_receive)) GTEST_SKIP() << "without multishot receives";
  const Connection connection;
  receiver.receive(connection.socket(), first);
  for (std::size_t i = 1; i <= 10; ++i) {
    connection.peer_sends(10, std::byte{1});
    ASSERT_TRUE(gets(i));
    EXPECT_TRUE(receiver.busy());
    receiver.receive(connection.socket(), first);
    EXPECT_EQ(ring.waiting(), 0u);
  }
}

}  // namespace
}  // namespace sluice::tcp
