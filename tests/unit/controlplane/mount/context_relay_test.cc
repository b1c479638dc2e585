// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/kerberos_contexts.h"

#include <gtest/gtest.h>

#include "dataplane/base/setup_error.h"
#include "tests/unit/controlplane/onc_rpc/rpc_lab.h"

namespace sluice::kerberos {
namespace {

using namespace onc_rpc::lab;

constexpr std::uint32_t kNfs = 100003;
constexpr std::uint32_t kNfsAcl = 100227;

/// Returns the credential of RPCSEC_GSS_INIT (RFC 2203, section 5.2.2): version, procedure, sequence number,
/// service, an empty handle.
Bytes init_credential() {
  return encoded([](xdr::Writer& writer) { writer.words(1, 1, 0, 1, 0); });
}

Bytes context_call(std::uint32_t xid, std::uint32_t version = 4, std::size_t token_bytes = 500,
                   std::uint32_t program = kNfs) {
  const Bytes credential = init_credential();
  const Bytes token(token_bytes, std::byte{0x5a});
  Bytes room(token_bytes + 200);
  xdr::Writer writer(room);
  rpc::encode_call(writer, {.xid = rpc::Xid{xid},
                            .program = program,
                            .version = version,
                            .procedure = 0,
                            .credential = {rpc::AuthFlavor::RpcSecGss, credential},
                            .verifier = {}});
  writer.opaque(token);
  room.resize(writer.position());
  return room;
}

class Contexts : public testing::Test {
 protected:
  void serve(std::initializer_list<segment::RouteConfig> routes, onc_rpc::lab::FakeServer& server) {
    segment::UpstreamConfig& upstream = block_.upstreams[block_.upstream_count++];
    const std::string name = "u" + std::to_string(block_.upstream_count);
    std::memcpy(upstream.name, name.c_str(), name.size() + 1);
    upstream.port = server.port();
    set_address(upstream.name, kFour, upstream.port);
    for (const segment::RouteConfig& route : routes) upstream.routes[upstream.route_count++] = route;
    servers_.push_back(&server);
  }
  void set_address(const std::string& name, const PeerAddress& address, std::uint32_t port) {
    segment::UpstreamAddressList& list = table_[block_.upstream_count - 1];
    std::memcpy(list.name, name.c_str(), name.size() + 1);
    list.port = port;
    list.count = 1;
    list.addresses[0].address = address;
    addresses_.write(table_);
  }
  std::unique_ptr<Stream> open() {
    if (!service_) service_.emplace(0, block_, addresses_, statistics_);
    return connect_to(service_->port());
  }
  void until(const std::function<bool()>& done) {
    turn_until(*service_, now_ns_, [&] {
      for (FakeServer* server : servers_) server->pump();
      return done();
    });
  }
  void until_calls(FakeServer& server, std::size_t count) {
    until([&] { return server.calls.size() == count; });
  }
  Bytes reply(Stream& stream) {
    std::optional<Bytes> message;
    until([&] {
      stream.receive();
      return (message = stream.next()).has_value();
    });
    return message.value_or(Bytes{});
  }
  rpc::ReplyHeader asked(Stream& stream, const Bytes& call) {
    stream.send(record(call));
    const Bytes message = reply(stream);
    xdr::Reader reader(message);
    const auto decoded = rpc::decode_reply(reader);
    EXPECT_TRUE(decoded.ok);
    return decoded.header;
  }
  void until_ended(Stream& stream) {
    until([&] { return !stream.receive(); });
  }
  static std::uint64_t value(const std::atomic<std::uint64_t>& counter) { return counter.load(); }

  segment::ConfigBlock block_{};
  segment::UpstreamAddressTable table_{};
  segment::SharedUpstreamAddresses addresses_{};
  ContextStatistics statistics_;
  FakeServer server_;
  std::vector<FakeServer*> servers_;
  std::optional<ContextService> service_;
  std::uint64_t now_ns_ = kStartNs;
};

TEST_F(Contexts, a_call_and_its_reply_go_through_as_they_are) {
  serve({{kNfs, 4}}, server_);
  const auto client = open();
  const Bytes call = context_call(0x77000001);
  client->send(record(call));
  until_calls(server_, 1);
  // Everything after the header. The fake server decodes the credential and verifier of the header.
  EXPECT_EQ(server_.calls[0].arguments, Bytes(call.end() - 504, call.end()));
  const Bytes results(40, std::byte{0x33});
  server_.answer(server_.calls[0], results);
  const Bytes message = reply(*client);
  EXPECT_EQ(xdr::load_u32(message.data()), 0x77000001u);
  EXPECT_EQ(Bytes(message.begin() + rpc::kMinReplyBytes, message.end()), results);
  EXPECT_EQ(value(statistics_.questions), 1u);
}

TEST_F(Contexts, a_call_goes_to_the_upstream_that_has_its_version) {
  FakeServer other;
  serve({{kNfs, 3}, {kNfsAcl, 3}}, server_);
  serve({{kNfs, 4}}, other);
  const auto client = open();
  client->send(record(context_call(1, 3)));
  until_calls(server_, 1);
  client->send(record(context_call(2, 4)));
  until_calls(other, 1);
  client->send(record(context_call(3, 3, 500, kNfsAcl)));
  until_calls(server_, 2);
}

TEST_F(Contexts, a_call_goes_to_the_port_of_the_last_reload) {
  FakeServer moved;
  serve({{kNfs, 4}}, server_);
  servers_.push_back(&moved);
  const auto client = open();
  client->send(record(context_call(1)));
  until_calls(server_, 1);
  set_address("u1", kFour, moved.port());
  client->send(record(context_call(2)));
  until([&] { return server_.calls.size() + moved.calls.size() == 2; });
  EXPECT_EQ(moved.calls.size(), 1u);
}

TEST_F(Contexts, an_upstream_at_a_port_of_its_own_is_not_meant) {
  FakeServer other;
  serve({{kNfs, 4}}, server_);
  serve({{kNfs, 4}, {kNfsAcl, 3}}, other);
  block_.upstreams[1].listen_port = 20050;
  const auto client = open();
  client->send(record(context_call(1, 4)));
  until_calls(server_, 1);
  EXPECT_EQ(asked(*client, context_call(2, 3, 500, kNfsAcl)).accept, rpc::AcceptStat::ProgUnavail);
  EXPECT_TRUE(other.calls.empty());
}

TEST_F(Contexts, everything_else_is_refused_or_answered_here) {
  serve({{kNfs, 3}, {kNfs, 4}}, server_);
  const auto client = open();
  EXPECT_TRUE(asked(*client, call_message(1, {kNfs, 4, 0})).success());
  EXPECT_EQ(asked(*client, call_message(2, {kNfs, 4, 1})).accept, rpc::AcceptStat::ProcUnavail);
  EXPECT_EQ(asked(*client, call_message(3, {100005, 3, 0})).accept, rpc::AcceptStat::ProgUnavail);
  const rpc::ReplyHeader mismatch = asked(*client, context_call(4, 2));
  EXPECT_EQ(mismatch.accept, rpc::AcceptStat::ProgMismatch);
  EXPECT_EQ(mismatch.supported.low, 3u);
  EXPECT_EQ(mismatch.supported.high, 4u);
  EXPECT_TRUE(server_.calls.empty());
  client->send(record(Bytes(8)));  // not a call
  until_ended(*client);
}

TEST_F(Contexts, who_is_not_among_the_upstreams_clients_is_refused) {
  serve({{kNfs, 4}}, server_);
  block_.upstreams[0].allowed[0] = {PeerAddress::from_ipv4(192, 0, 2, 0), 120};
  block_.upstreams[0].allowed_count = 1;
  const auto client = open();
  const rpc::ReplyHeader refused = asked(*client, context_call(1));
  EXPECT_EQ(refused.stat, rpc::ReplyStat::Denied);
  EXPECT_EQ(refused.auth, rpc::AuthStat::RejectedCred);
  EXPECT_EQ(value(statistics_.denied), 1u);
}

TEST_F(Contexts, a_call_that_the_upstream_loses_is_not_sent_again_and_its_client_begins_anew) {
  serve({{kNfs, 4}}, server_);
  const auto client = open();
  client->send(record(context_call(1)));
  until_calls(server_, 1);
  server_.end_connections();
  until_ended(*client);
  const auto again = open();
  now_ns_ += onc_rpc::kReopenNs;
  again->send(record(context_call(2)));
  until_calls(server_, 2);
  EXPECT_EQ(value(statistics_.questions_failed), 1u);
}

/// The timeout of another call closes the connection to the upstream, because the upstream no longer answers
/// on it.
TEST_F(Contexts, nor_is_it_when_the_connection_is_replaced) {
  serve({{kNfs, 4}}, server_);
  const auto first = open();
  first->send(record(context_call(1)));
  until_calls(server_, 1);
  now_ns_ += kAnswerNs / 2;
  const auto second = open();
  second->send(record(context_call(2)));
  until_calls(server_, 2);
  now_ns_ += kAnswerNs / 2;
  until_ended(*first);
  now_ns_ += onc_rpc::kReopenNs;
  until_ended(*second);
  EXPECT_EQ(server_.calls.size(), 2u);
  EXPECT_EQ(value(statistics_.questions_timed_out), 1u);
}

TEST_F(Contexts, an_upstream_that_cannot_be_reached_ends_the_clients_connection) {
  serve({{kNfs, 4}}, server_);
  const auto client = open();
  server_.stop();
  client->send(record(context_call(1)));
  until_ended(*client);
  EXPECT_EQ(value(statistics_.questions_failed), 1u);
}

TEST_F(Contexts, tokens_may_be_long_but_not_too_long) {
  serve({{kNfs, 4}}, server_);
  const auto client = open();
  client->send(record(context_call(1, 4, 60'000)));
  until_calls(server_, 1);
  EXPECT_EQ(server_.calls[0].arguments.size(), 60'004u);
  const auto other = open();
  other->send(record(context_call(2, 4, kMaxCallBytes)));
  until_ended(*other);
  EXPECT_EQ(value(statistics_.sockets.records_too_long), 1u);
}

TEST_F(Contexts, a_port_that_is_taken_is_a_clear_sentence) {
  open();
  try {
    const ContextService second(service_->port(), block_, addresses_, statistics_);
    FAIL();
  } catch (const SetupError& error) {
    EXPECT_NE(std::string(error.what()).find("kerberos.enabled = false"), std::string::npos);
  }
}

TEST_F(Contexts, a_call_goes_where_the_upstream_is_now) {
  FakeServer other(PeerAddress::from_ipv4(127, 0, 0, 2), server_.port());
  serve({{kNfs, 4}}, server_);
  servers_.push_back(&other);
  const auto client = open();
  client->send(record(context_call(1)));
  until_calls(server_, 1);
  server_.answer(server_.calls[0], {});
  reply(*client);
  set_address("u1", PeerAddress::from_ipv4(127, 0, 0, 2), server_.port());
  client->send(record(context_call(2)));
  until_calls(other, 1);
}

TEST_F(Contexts, without_an_address_the_client_begins_again) {
  serve({{kNfs, 4}}, server_);
  table_ = {};
  addresses_.write(table_);
  const auto client = open();
  client->send(record(context_call(1)));
  until_ended(*client);
  EXPECT_EQ(value(statistics_.questions_failed), 1u);
}

}  // namespace
}  // namespace sluice::kerberos
