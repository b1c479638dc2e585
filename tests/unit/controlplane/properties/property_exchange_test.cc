// SPDX-License-Identifier: Apache-2.0
//
// The control plane's side of version 2's properties. The other end of the rings is the data plane's relay.
#include "controlplane/properties/property_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "controlplane/cm/outbox.h"
#include "controlplane/config/config.h"
#include "controlplane/events/journal.h"
#include "dataplane/reactor/properties.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/v2/agreement.h"
#include "dataplane/segment/segment.h"
#include "tests/unit/controlplane/properties/lab.h"

namespace sluice::properties {
namespace {

using Verdict = HostHandshake::Verdict;

class Exchange : public testing::Test {
 protected:
  Exchange() : outbox_(layout()), wanted_(area().wanted) {
    segment::ConnectionInfo info{};
    info.state = segment::ConnectionState::Open;
    info.incarnation = 77;
    area().connections[3].write(info);
    relay_ = std::make_unique<reactor::PropertyRelay>(area());
  }
  segment::Layout& layout() { return segment_->layout(); }
  segment::ReactorArea& area() { return layout().reactors[0]; }

  static Octets set(std::initializer_list<std::uint32_t> list) {
    Octets bytes(list.size() * 4);
    std::size_t at = 0;
    for (const std::uint32_t word : list) {
      xdr::store_u32(bytes.data() + at, word);
      at += 4;
    }
    return bytes;
  }
  static Octets authentication(std::span<const std::byte> octets) {
    Octets bytes(16 + xdr::padded(octets.size()));
    xdr::Writer writer(bytes);
    rpcrdma::v2::encode_host_authentication(writer, octets);
    return bytes;
  }
  /// Returns the desired state of connection 3, or of another one.
  segment::DesiredState course(std::uint32_t number = 3, std::uint32_t incarnation = 77) {
    return wanted_.course(number, incarnation);
  }
  segment::Parameters parameters(std::uint32_t number) {
    segment::Parameters parameters;
    std::memcpy(static_cast<void*>(&parameters), &area().wanted.details[number].parameters,
                sizeof parameters);
    return parameters;
  }
  std::string host(std::uint32_t number) {
    HostName host;
    std::memcpy(static_cast<void*>(&host), &area().wanted.details[number].host, sizeof host);
    return std::string(host.view());
  }
  /// Returns the properties received from the control plane for connection 3.
  Octets down(std::uint32_t incarnation = 77) {
    Octets result;
    for (int i = 0; i < 100 && result.empty(); ++i)
      relay_->poll([&](std::uint16_t connection, std::uint32_t to, std::span<const std::byte> octets) {
        EXPECT_EQ(connection, 3);
        EXPECT_EQ(to, incarnation);
        result.assign(octets.begin(), octets.end());
        return true;
      });
    return result;
  }
  void poll(PropertyExchange& exchange) {
    for (int i = 0; i < 40; ++i) {
      relay_->poll([](std::uint16_t, std::uint32_t, std::span<const std::byte>) { return false; });
      exchange.poll(now_ns_ += 1'000'000);
      outbox_.flush();
    }
  }

  config::Config config_ = config::defaults();
  const Owned<segment::Segment> segment_ = segment::Segment::in_memory();
  events::Journal journal_{[](const events::Event&) {}};
  cm::Outbox outbox_;
  segment::DesiredStateWriter wanted_;
  std::unique_ptr<reactor::PropertyRelay> relay_;
  std::uint64_t now_ns_ = 1;
};

TEST_F(Exchange, V2_047_V2_052_what_follows_from_a_set_goes_down) {
  PropertyExchange exchange(layout(), config_, outbox_, {}, journal_);
  EXPECT_TRUE(relay_->take(3, 77, set({3, 2, 4, 8192, 3, 4, 65536, 4, 4, 7}), true));
  poll(exchange);
  ASSERT_TRUE(course().parameters);
  const segment::Parameters sent = parameters(3);
  EXPECT_EQ(sent.send_bytes, 8192u);
  EXPECT_EQ(sent.max_segment_bytes, 65536u);
  EXPECT_EQ(sent.max_segments, 7u);
  EXPECT_EQ(sent.reverse, 1u);
  // A later set does not change the parameters (V2-059).
  EXPECT_TRUE(relay_->take(3, 77, set({1, 2, 4, 65536}), false));
  poll(exchange);
  EXPECT_EQ(parameters(3), sent);
  EXPECT_EQ(exchange.statistics().sets, 2u);
}

TEST_F(Exchange, V2_065_values_out_of_range_are_clamped_and_counted) {
  PropertyExchange exchange(layout(), config_, outbox_, {}, journal_);
  EXPECT_TRUE(relay_->take(3, 77, set({4, 2, 4, 1, 3, 4, 1, 4, 4, 0, 5, 4, 9}), true));
  poll(exchange);
  ASSERT_TRUE(course().parameters);
  const segment::Parameters sent = parameters(3);
  EXPECT_EQ(sent.send_bytes, 1024u);
  EXPECT_EQ(sent.max_segment_bytes, 4096u);
  EXPECT_EQ(sent.max_segments, 1u);
  EXPECT_EQ(sent.reverse, 1u);
  EXPECT_EQ(exchange.statistics().clamped, 3u);
}

TEST_F(Exchange, V2_062_V2_063_a_host_that_shows_who_it_is_is_admitted) {
  PropertyExchange exchange(layout(), config_, outbox_, authentication_of(hosts_of({{"client", kKey}})),
                            journal_);
  PskClient client = client_of("client");
  EXPECT_TRUE(relay_->take(3, 77, authentication(client.begin()), true));
  poll(exchange);
  EXPECT_TRUE(course().parameters);
  EXPECT_FALSE(course().admitted);
  const auto step = client.on_octets(down());
  EXPECT_EQ(step.verdict, Verdict::Accepted);
  EXPECT_TRUE(relay_->take(3, 77, authentication(step.answer), false));
  poll(exchange);
  EXPECT_TRUE(course().admitted);
  EXPECT_EQ(exchange.statistics().authenticated, 1u);
}

TEST_F(Exchange, a_handshake_uses_the_keys_that_are_in_force_when_it_begins) {
  PropertyExchange exchange(layout(), config_, outbox_, authentication_of(hosts_of({{"client", kKey}})),
                            journal_);
  PskClient client = client_of("client");
  EXPECT_TRUE(relay_->take(3, 77, authentication(client.begin()), false));
  poll(exchange);
  exchange.set_authentication(authentication_of(hosts_of({{"client", "the key that replaces it"}})));
  EXPECT_TRUE(relay_->take(3, 77, authentication(client.on_octets(down()).answer), false));
  poll(exchange);
  EXPECT_TRUE(course().admitted);
  // The old key is refused on the next connection.
  EXPECT_TRUE(relay_->take(3, 78, authentication(client_of("client").begin()), false));
  poll(exchange);
  EXPECT_EQ(course(3, 78).end, segment::End::Disconnect);
}

TEST_F(Exchange, a_host_is_admitted_with_its_name_and_into_its_class) {
  config_ = config::parse(
      "[[client_class]]\nname = \"gold\"\n"
      "[[host_authentication.host]]\nname = \"a\"\nkey_files = [\"/a\"]\nclass = \"gold\"\n"
      "[[host_authentication.host]]\nname = \"b\"\nkey_files = [\"/b\"]\n",
      "f");
  std::uint32_t incarnation = 77;
  const auto admission_of = [&](const std::string& name) {
    ++incarnation;
    PropertyExchange exchange(layout(), config_, outbox_, authentication_of(hosts_of({{name, kKey}})),
                              journal_);
    PskClient client = client_of(name);
    EXPECT_TRUE(relay_->take(3, incarnation, authentication(client.begin()), false));
    poll(exchange);
    EXPECT_TRUE(
        relay_->take(3, incarnation, authentication(client.on_octets(down(incarnation)).answer), false));
    poll(exchange);
    EXPECT_TRUE(course(3, incarnation).admitted);
    return std::pair(host(3), wanted_.grant(3, incarnation).client_class);
  };
  EXPECT_EQ(admission_of("a"), std::pair(std::string("a"), 1u));
  EXPECT_EQ(admission_of("b"), std::pair(std::string("b"), segment::kKeepClass));
  EXPECT_EQ(admission_of(std::string(64, 'n')).first, std::string(64, 'n'));
}

TEST_F(Exchange, V2_062_a_handshake_goes_on_though_its_connection_is_not_published_yet) {
  const auto published = area().connections[3].read();
  ASSERT_TRUE(published);
  area().connections[3].write({});
  PropertyExchange exchange(layout(), config_, outbox_, authentication_of(hosts_of({{"client", kKey}})),
                            journal_);
  PskClient client = client_of("client");
  EXPECT_TRUE(relay_->take(3, 77, authentication(client.begin()), true));
  now_ns_ += 600'000'000;  // the exchange reads the table before the reactor writes it
  poll(exchange);
  EXPECT_TRUE(course().parameters);
  area().connections[3].write(*published);
  const auto step = client.on_octets(down());
  EXPECT_TRUE(relay_->take(3, 77, authentication(step.answer), false));
  poll(exchange);
  EXPECT_TRUE(course().admitted);
}

TEST_F(Exchange, V2_062_one_that_does_not_is_closed_at_once_or_in_time) {
  PropertyExchange exchange(layout(), config_, outbox_, authentication_of(hosts_of({{"client", kKey}})),
                            journal_);
  EXPECT_TRUE(relay_->take(3, 77, authentication(set({1, 2, 3})), false));
  poll(exchange);
  EXPECT_EQ(course().end, segment::End::Disconnect);
  EXPECT_EQ(static_cast<rpcrdma::CloseReason>(course().reason), rpcrdma::CloseReason::NotAuthenticated);
  // Connection 4 never sends a property.
  segment::ConnectionInfo held{};
  held.state = segment::ConnectionState::Open;
  held.incarnation = 78;
  held.held = 1;
  area().connections[4].write(held);
  poll(exchange);
  now_ns_ += 600'000'000;
  poll(exchange);
  EXPECT_EQ(course(4, 78).end, segment::End::No);
  now_ns_ += 11'000'000'000;
  poll(exchange);
  EXPECT_EQ(course(4, 78).end, segment::End::Disconnect);
  EXPECT_EQ(exchange.statistics().refused, 2u);
}

TEST_F(Exchange, V2_063_large_sets_go_in_parts_and_wait_for_room) {
  PropertyExchange exchange(layout(), config_, outbox_, {}, journal_);
  Octets large(60'000, std::byte{7});
  Octets body(12 + large.size());
  xdr::Writer writer(body);
  writer.u32(1);
  writer.u32(0x7fff0001);
  writer.opaque(large);
  for (std::uint32_t i = 0; i < reactor::PropertyRelay::kOutboxes; ++i)
    EXPECT_TRUE(relay_->take(3, 77, body, i == 0));
  EXPECT_FALSE(relay_->take(3, 77, body, false));  // refused, so the connection keeps it
  for (int i = 0; i < 20; ++i) poll(exchange);
  EXPECT_EQ(exchange.statistics().sets, reactor::PropertyRelay::kOutboxes);
  EXPECT_EQ(exchange.statistics().parts_lost, 0u);
  EXPECT_TRUE(relay_->take(3, 77, body, false));
}

TEST_F(Exchange, one_that_is_to_be_closed_is_though_the_ring_has_no_room) {
  PropertyExchange exchange(layout(), config_, outbox_, {}, journal_);
  while (area().commands.push({})) {
  }
  while (area().wanted.hints.push(0)) {
  }
  auto held = area().connections[3].read().value();
  held.held = 1;
  area().connections[3].write(held);
  exchange.poll(now_ns_ += 600'000'000);
  exchange.poll(now_ns_ += 100'000'000'000);
  EXPECT_EQ(course().end, segment::End::Disconnect);
}

TEST_F(Exchange, properties_that_a_predecessor_took_and_did_not_judge_are_judged_from_the_table) {
  auto info = area().connections[3].read().value();
  info.heard_properties = 1;
  info.own_properties.max_send_bytes = 4096;
  info.peer_properties = {.max_send_bytes = 1024,
                          .receive_buffer_bytes = 8192,
                          .max_segment_bytes = 65536,
                          .max_segments = 7,
                          .reverse = 0};
  area().connections[3].write(info);
  PropertyExchange exchange(layout(), config_, outbox_, {}, journal_);
  exchange.poll(now_ns_ += 600'000'000);
  ASSERT_TRUE(course().parameters);
  EXPECT_EQ(
      parameters(3),
      (segment::Parameters{.send_bytes = 4096, .max_segment_bytes = 65536, .max_segments = 7, .reverse = 0}));
}

TEST_F(Exchange, an_iteration_of_the_control_loop_checks_the_connections_of_one_reactor) {
  config_.block.reactors = 2;
  auto info = area().connections[3].read().value();
  info.heard_properties = 1;
  for (std::uint32_t reactor = 0; reactor < 2; ++reactor)
    layout().reactors[reactor].connections[3].write(info);
  segment::DesiredStateWriter second(layout().reactors[1].wanted);
  PropertyExchange exchange(layout(), config_, outbox_, {}, journal_);
  for (int round = 0; round < 2; ++round) {
    exchange.poll(now_ns_ += 600'000'000);
    EXPECT_TRUE(course().parameters);
    EXPECT_EQ(bool{second.course(3, 77).parameters}, round > 0);
    exchange.poll(now_ns_ += 1);
    EXPECT_TRUE(second.course(3, 77).parameters);
  }
}

TEST_F(Exchange, an_answer_that_finds_no_room_is_sent_when_there_is) {
  PropertyExchange exchange(layout(), config_, outbox_, authentication_of(hosts_of({{"client", kKey}})),
                            journal_);
  while (area().properties_down.push({})) {
  }
  EXPECT_TRUE(relay_->take(3, 77, authentication(client_of("client").begin()), false));
  exchange.poll(now_ns_ += 1);
  EXPECT_EQ(outbox_.waiting(), 1u);
  EXPECT_EQ(outbox_.statistics().parts_delayed, 1u);
  segment::PropertyPart part;
  ASSERT_TRUE(area().properties_down.pop(part));
  EXPECT_TRUE(outbox_.flush());
  EXPECT_EQ(outbox_.waiting(), 0u);
}

TEST_F(Exchange, the_end_of_a_set_whose_beginning_a_predecessor_took_is_dropped) {
  segment::PropertyPart part{.connection = 3, .incarnation = 77, .total_bytes = 8, .offset = 4, .bytes = 4};
  area().properties_up.push(part);
  PropertyExchange exchange(layout(), config_, outbox_, {}, journal_);
  exchange.poll(1);
  EXPECT_EQ(exchange.statistics().parts_lost, 1u);
  EXPECT_EQ(exchange.statistics().sets, 0u);
  // An invalid length, malicious or corrupt, is counted as well.
  part = {.connection = 3, .incarnation = 77, .total_bytes = 0xffffffff, .offset = 0, .bytes = 0xffffffff};
  area().properties_up.push(part);
  exchange.poll(2);
  EXPECT_EQ(exchange.statistics().parts_lost, 2u);
}

}  // namespace
}  // namespace sluice::properties
