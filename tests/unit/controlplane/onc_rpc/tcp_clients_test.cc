// SPDX-License-Identifier: Apache-2.0
#include "controlplane/onc_rpc/tcp_clients.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "controlplane/events/journal.h"
#include "controlplane/mount/mount_service.h"
#include "tests/unit/controlplane/mount/mount_lab.h"

namespace sluice::onc_rpc {
namespace {

using namespace mount;
using namespace mount::lab;

/// Withholds answers for /held until the test sends them, and lists many exports.
class HeldExports final : public Exports {
 public:
  void mount(const std::string& path, const Asker&, OnMount done) override {
    if (path == "/held")
      held.push_back(std::move(done));
    else
      done({MountStatus::NoEnt, {}});
  }
  void list(const Asker&, OnList done) override { done(&paths); }

  std::vector<OnMount> held;
  std::vector<std::string> paths = std::vector<std::string>(200, std::string(1000, 'p'));
};

class MountClients : public testing::Test {
 protected:
  MountClients() {
    auto exports = std::make_unique<HeldExports>();
    exports_ = exports.get();
    service_.emplace(0, "", std::move(exports), statistics_, journal_);
  }
  auto connect(std::uint8_t last = 1, int receive_bytes = 0) {
    return connect_to(service_->port(), last, receive_bytes);
  }
  void until(const std::function<bool()>& done) { turn_until(*service_, now_ns_, done); }
  void until_clients(std::size_t count) {
    until([&] { return service_->clients() == count; });
  }
  /// Returns the next reply without its header, which must indicate success.
  Bytes reply(Stream& stream) {
    std::optional<Bytes> message;
    until([&] {
      stream.receive();
      return (message = stream.next()).has_value();
    });
    if (!message) return {};
    xdr::Reader reader(*message);
    const auto decoded = rpc::decode_reply(reader);
    EXPECT_TRUE(decoded.ok && decoded.header.success());
    return {reader.rest().begin(), reader.rest().end()};
  }
  void until_ended(Stream& stream) {
    until([&] { return !stream.receive(); });
  }
  static std::uint64_t value(const std::atomic<std::uint64_t>& counter) { return counter.load(); }

  events::Journal journal_{[](const events::Event&) {}};
  MountStatistics statistics_;
  HeldExports* exports_ = nullptr;
  std::optional<MountService> service_;
  std::uint64_t now_ns_ = kStartNs;
};

TEST_F(MountClients, two_bytes_delay_nobody_and_are_waited_for_no_longer_than_a_call_may_take) {
  const auto stranger = connect();
  stranger->send({std::byte{0x80}, std::byte{0}});
  until_clients(1);
  const auto client = connect();
  client->send(record(call_message(1, kNullCall)));
  EXPECT_EQ(reply(*client), Bytes{});
  EXPECT_TRUE(stranger->receive()) << "it is still connected";
  now_ns_ += kCallNs - 1;
  turns(*service_, now_ns_);
  EXPECT_TRUE(stranger->receive());
  now_ns_ += 1;
  until_ended(*stranger);
  EXPECT_EQ(value(statistics_.sockets.connections_overdue), 1u);
  EXPECT_TRUE(client->receive()) << "who sends whole calls is idle for longer";
}

TEST_F(MountClients, a_call_that_trickles_has_its_first_bytes_time) {
  const auto stranger = connect();
  const Bytes call = record(call_message(1, kNullCall));
  for (std::size_t i = 0; i + 1 < call.size() && i < 10; ++i) {
    stranger->send({call[i]});
    turns(*service_, now_ns_, 5);
    now_ns_ += kCallNs / 10;
  }
  now_ns_ += kCallNs / 10;  // after the deadline of the first byte, before that of the last one
  until_ended(*stranger);
  EXPECT_EQ(value(statistics_.sockets.connections_overdue), 1u);
}

TEST_F(MountClients, a_connection_without_calls_ends) {
  const auto client = connect();
  until_clients(1);
  now_ns_ += kIdleClientNs;
  until_ended(*client);
  EXPECT_EQ(service_->clients(), 0u);
}

TEST_F(MountClients, replies_that_are_not_taken_end_the_connection_and_stop_its_calls) {
  const auto stranger = connect(1, 4096);
  constexpr std::uint64_t kCalls = 200;  // 40 MB of replies, more than sockets hold
  for (std::uint32_t i = 0; i < kCalls; ++i) stranger->send(record(call_message(i, kExportCall)));
  turns(*service_, now_ns_, 300);
  EXPECT_LT(value(statistics_.calls), kCalls) << "further calls are not taken";
  const auto client = connect();
  client->send(record(call_message(1, kNullCall)));
  EXPECT_EQ(reply(*client), Bytes{});
  now_ns_ += kReplyNs;
  until_clients(1);
  EXPECT_EQ(value(statistics_.sockets.connections_overdue), 1u);
}

TEST_F(MountClients, a_record_longer_than_any_call_ends_the_connection_at_once) {
  for (const std::uint32_t bytes : {static_cast<std::uint32_t>(kMaxCallBytes) + 5, 0x7FFFFFFFu}) {
    const std::uint64_t before = value(statistics_.sockets.records_too_long);
    const auto stranger = connect();
    Bytes begin(12);
    xdr::store_u32(begin.data(), 1u << 31 | bytes);
    stranger->send(begin);
    until_ended(*stranger);
    EXPECT_EQ(value(statistics_.sockets.records_too_long), before + 1);
  }
}

TEST_F(MountClients, the_longest_call_is_taken) {
  const auto client = connect();
  const Bytes call = encoded([](xdr::Writer& writer) {
    const Bytes longest(rpc::kMaxAuthBytes);
    rpc::encode_call(writer, {.xid = rpc::Xid{1},
                              .program = kMountProgram,
                              .version = kMountVersion,
                              .procedure = kMnt,
                              .credential = {rpc::AuthFlavor::Sys, longest},
                              .verifier = {rpc::AuthFlavor::None, longest}});
    writer.string(std::string(kMaxPath, '/'));
  });
  client->send(record(call));
  EXPECT_EQ(reply(*client), encoded([](xdr::Writer& w) { w.u32(2); }));
}

TEST_F(MountClients, one_network_has_a_share_of_the_connections) {
  std::vector<std::unique_ptr<Stream>> strangers;
  for (std::size_t i = 0; i < kMaxClientsOfNetwork; ++i) {
    strangers.push_back(connect());
    strangers.back()->send({std::byte{0x80}});
    until([&] { return service_->clients() == i + 1; });
  }
  turns(*service_, now_ns_);
  until_ended(*connect());
  EXPECT_EQ(value(statistics_.sockets.connections_refused), 1u);
  const auto other = connect(2);
  other->send(record(call_message(1, kNullCall)));
  EXPECT_EQ(reply(*other), Bytes{}) << "another host is served";
  EXPECT_TRUE(strangers[0]->receive());
}

TEST_F(MountClients, the_connection_that_has_been_idle_longest_gives_way_to_a_new_one) {
  std::vector<std::unique_ptr<Stream>> idle;
  for (std::uint8_t host = 1; idle.size() < kMaxClients; ++host)
    for (std::size_t i = 0; i < kMaxClientsOfNetwork; ++i) {
      idle.push_back(connect(host));
      until_clients(idle.size());
      ++now_ns_;
    }
  const auto client = connect(99);
  client->send(record(call_message(1, kNullCall)));
  EXPECT_EQ(reply(*client), Bytes{});
  EXPECT_FALSE(idle[0]->receive());
  EXPECT_TRUE(idle[1]->receive());
  EXPECT_EQ(service_->clients(), kMaxClients);
  EXPECT_EQ(value(statistics_.sockets.connections_replaced), 1u);
}

TEST_F(MountClients, hosts_that_hold_every_place_give_way_to_another) {
  std::vector<std::unique_ptr<Stream>> strangers;
  for (std::uint8_t host = 1; strangers.size() < kMaxClients; ++host)
    for (std::size_t i = 0; i < kMaxClientsOfNetwork; ++i) {
      strangers.push_back(connect(host));
      strangers.back()->send({std::byte{0x80}});
      until_clients(strangers.size());
    }
  turns(*service_, now_ns_);
  const auto client = connect(99);
  client->send(record(call_message(1, kNullCall)));
  EXPECT_EQ(reply(*client), Bytes{});
  EXPECT_EQ(value(statistics_.sockets.connections_replaced), 1u);
  EXPECT_EQ(value(statistics_.sockets.connections_refused), 0u);
}

TEST_F(MountClients, calls_of_a_connection_that_wait_are_bounded_and_the_rest_follows) {
  const auto client = connect();
  for (std::uint32_t i = 0; i < kMaxCallsOfClient; ++i)
    client->send(record(call_message(i, kMntCall, path_argument("/held"))));
  client->send(record(call_message(9, kNullCall)));
  until([&] { return exports_->held.size() == kMaxCallsOfClient; });
  turns(*service_, now_ns_);
  EXPECT_EQ(value(statistics_.calls), kMaxCallsOfClient);
  exports_->held[0]({MountStatus::NoEnt, {}});
  EXPECT_EQ(reply(*client), encoded([](xdr::Writer& w) { w.u32(2); }));
  EXPECT_EQ(reply(*client), Bytes{}) << "the NULL, though three calls wait";
}

TEST_F(MountClients, who_has_said_its_last_call_gets_the_reply_and_who_has_gone_gets_none) {
  const auto polite = connect();
  const auto gone = connect();
  for (Stream* stream : {polite.get(), gone.get()})
    stream->send(record(call_message(1, kMntCall, path_argument("/held"))));
  until([&] { return exports_->held.size() == 2; });
  polite->end_sending();
  gone->abort();
  until_clients(1);
  for (const auto& done : exports_->held) done({MountStatus::NoEnt, {}});
  EXPECT_EQ(reply(*polite), encoded([](xdr::Writer& w) { w.u32(2); }));
  until_clients(0);
}

TEST_F(MountClients, a_turn_takes_some_calls_of_a_connection_and_the_next_one_comes_at_once) {
  const auto client = connect();
  constexpr std::uint64_t kCalls = kCallsPerTurn + 4;
  Bytes calls;
  for (std::uint32_t i = 0; i < kCalls; ++i) {
    const Bytes one = record(call_message(i, kNullCall));
    calls.insert(calls.end(), one.begin(), one.end());
  }
  client->send(calls);
  until([&] { return value(statistics_.calls) > 0; });
  EXPECT_EQ(value(statistics_.calls), kCalls - 4);
  PollSet set;
  service_->prepare(set);
  EXPECT_EQ(set.wake_ns(), 0u);
  until([&] { return value(statistics_.calls) == kCalls; });
}

TEST_F(MountClients, a_process_without_descriptors_does_not_spin_and_accepts_later) {
  const auto client = connect();
  PollSet set;
  service_->prepare(set);
  set.wait(now_ns_);
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{0, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  service_->poll(set, now_ns_);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_EQ(service_->clients(), 0u);
  set.clear();
  service_->prepare(set);
  EXPECT_EQ(set.wake_ns(), now_ns_ + kAcceptRestNs);
  turns(*service_, now_ns_);
  EXPECT_EQ(service_->clients(), 0u);
  now_ns_ += kAcceptRestNs;
  until_clients(1);
}

TEST_F(MountClients, what_is_no_call_ends_the_connection) {
  const auto stranger = connect();
  stranger->send(record(Bytes(40, std::byte{1})));
  until_ended(*stranger);
  EXPECT_EQ(value(statistics_.malformed), 1u);
}

}  // namespace
}  // namespace sluice::onc_rpc
