// SPDX-License-Identifier: Apache-2.0
//
// COMPOUNDs of sessions (NFS 4.1) over the connections of an upstream (RFC 8881, section 2.10.3.1).
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

constexpr std::uint32_t kReadNumber = 25, kGetAttrOp = 9, kSequence = 53, kPutRootFh = 24;
constexpr std::uint32_t kNotBoundToSession = 10055, kBadSession = 10052;
constexpr std::uint32_t kShared = 3;
constexpr std::uint32_t kLong = 100'000;

Bytes compound(std::uint32_t minor_version, std::uint32_t operations, const Bytes& body) {
  Bytes arguments = words({0, minor_version, operations});
  append(arguments, body);
  return call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, arguments);
}
Bytes sequence(std::uint32_t session, std::uint32_t slot) {
  return words({kSequence, session, 0, 0, 1, 7, slot, 31, 0});
}
/// Returns a COMPOUND of SEQUENCE and READ.
Bytes session_read_call(std::uint32_t slot = 0, std::uint32_t bytes = kLong) {
  Bytes body = sequence(1, slot);
  append(body, words({kReadNumber, 1, 2, 3, 4, 0, 0, bytes}));
  return compound(1, 2, body);
}
Bytes get_attr_call() {
  Bytes body = sequence(1, 5);
  append(body, words({kGetAttrOp, 1, 0x18}));
  return compound(1, 2, body);
}
/// Returns results that end at an operation that failed.
Bytes failed(const FakeUpstream::Call& call, std::uint32_t operation, std::uint32_t status) {
  return success(call.xid(), words({status, 0, 1, operation, status}));
}
Bytes done(const FakeUpstream::Call& call) {
  return success(call.xid(), words({0, 0, 0}));
}

struct Sessions : testing::Test {
  ForwardLab lab{{.record_buffers = 32, .shared_connections = kShared}};

  /// Returns a client that has been granted its credits and has its own connection, the next one of the
  /// upstream's.
  LabClient& client_with_own() {
    lab.upstream.answer = done;
    LabClient& client = lab.add_client();
    lab.call(client, {.payload = get_attr_call(), .max_reply_bytes = 200});
    lab.upstream.answer = nullptr;
    lab.upstream.calls.clear();
    return client;
  }
  static void submit(LabClient& client, const Bytes& call, std::uint32_t reply_bytes = kLong + 200) {
    client.submit({.payload = call, .max_reply_bytes = reply_bytes});
  }
  /// Returns the connections of the calls that have arrived, in order.
  std::vector<std::size_t> connections(std::size_t expected) {
    EXPECT_TRUE(lab.until([&] { return lab.upstream.calls.size() >= expected; }));
    std::vector<std::size_t> seen;
    for (const FakeUpstream::Call& call : lab.upstream.calls) seen.push_back(call.connection);
    return seen;
  }
  /// Answers calls on `own`, and answers calls on other connections with an error.
  void take_only(std::size_t own, std::uint32_t operation = kSequence,
                 std::uint32_t status = kNotBoundToSession) {
    lab.upstream.answer = [=](const FakeUpstream::Call& call) {
      return call.connection == own ? done(call) : failed(call, operation, status);
    };
  }
};

TEST_F(Sessions, long_compounds_take_the_shared_connections_in_turn) {
  LabClient& client = client_with_own();
  for (std::uint32_t slot = 0; slot < 2 * kShared; ++slot) submit(client, session_read_call(slot));
  std::vector<std::size_t> seen = connections(2 * kShared);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::size_t>{1, 1, 2, 2, 3, 3}));
}

TEST_F(Sessions, short_compounds_stay_on_the_connection_of_their_client) {
  LabClient& client = client_with_own();
  submit(client, session_read_call());
  submit(client, get_attr_call(), 200);
  submit(client, session_read_call(0, 512), 800);
  std::vector<std::size_t> seen = connections(3);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::size_t>{0, 0, 1}));
}

TEST_F(Sessions, what_has_none_stays_whatever_its_length) {
  LabClient& client = client_with_own();
  const Bytes read = words({kReadNumber, 1, 2, 3, 4, 0, 0, kLong});
  Bytes without = words({kPutRootFh});
  append(without, read);
  Bytes late = words({kPutRootFh});
  append(late, sequence(1, 0));
  append(late, read);
  Bytes of_version_0 = sequence(1, 0);
  append(of_version_0, read);
  submit(client, compound(1, 2, without));
  submit(client, compound(1, 3, late));
  submit(client, compound(0, 2, of_version_0));
  EXPECT_EQ(connections(3), (std::vector<std::size_t>{0, 0, 0}));
}

TEST_F(Sessions, what_is_signed_stays) {
  LabClient& client = client_with_own();
  const Bytes plain = session_read_call();
  Bytes call = words({0, 0, 2, ulb::kNfsProgram, 4, ulb::kNfs4Compound, 6});
  Bytes credential = words({1, 0, 77, 1});
  append(credential, opaque(pattern(8, 1)));
  append(call, opaque(credential));
  append(call, words({6}));
  append(call, opaque(pattern(28, 2)));
  call.insert(call.end(), plain.begin() + kArgumentsAt, plain.end());
  submit(client, call);
  EXPECT_EQ(connections(1), std::vector<std::size_t>{0});
}

TEST_F(Sessions, where_the_upstream_refuses_other_connections_all_go_on_the_clients_own) {
  LabClient& client = client_with_own();
  take_only(0);
  for (std::uint32_t slot = 0; slot < 2; ++slot) submit(client, session_read_call(slot));
  ASSERT_TRUE(
      lab.until([&] { return client.finished.back().has_value() && client.finished[1].has_value(); }));
  for (std::size_t i = 1; i < client.finished.size(); ++i)
    EXPECT_EQ(word_at(client.finished[i]->message, 6), 0u)
        << "the client sees the answer to the second attempt";
  EXPECT_EQ(lab.count(Counter::unassociated), 2u);
  EXPECT_EQ(lab.upstream.calls.size(), 4u);
  lab.upstream.calls.clear();
  submit(client, session_read_call());
  EXPECT_EQ(connections(1), std::vector<std::size_t>{0}) << "and the next ones begin there";
  EXPECT_EQ(lab.count(Counter::disconnects), 0u);
}

TEST_F(Sessions, another_client_of_such_an_upstream_tries_for_itself) {
  LabClient& first = client_with_own();
  take_only(0);
  ASSERT_EQ(word_at(lab.call(first, {.payload = session_read_call(), .max_reply_bytes = kLong}).message, 6),
            0u);
  LabClient& second = client_with_own();
  submit(second, session_read_call());
  EXPECT_NE(connections(1)[0], 0u);
  EXPECT_NE(connections(1)[0], 2u) << "its own";
}

TEST_F(Sessions, a_client_that_comes_back_tries_again) {
  LabClient& client = client_with_own();
  take_only(0);
  ASSERT_EQ(word_at(lab.call(client, {.payload = session_read_call(), .max_reply_bytes = kLong}).message, 6),
            0u);
  lab.disconnect(client);
  client.requester.cancel_all();
  lab.reconnect(client);
  lab.upstream.answer = done;
  lab.call(client, {.payload = get_attr_call(), .max_reply_bytes = 200});
  lab.upstream.calls.clear();
  ASSERT_EQ(word_at(lab.call(client, {.payload = session_read_call(), .max_reply_bytes = kLong}).message, 6),
            0u);
  EXPECT_EQ(connections(1)[0], 1u) << "a shared one, as before";
}

TEST_F(Sessions, all_that_was_taken_for_the_first_attempt_is_given_back) {
  LabClient& client = client_with_own();
  take_only(0);
  for (std::uint32_t i = 0; i < 3 * lab.options.max_calls; ++i) {
    ASSERT_EQ(
        word_at(lab.call(client, {.payload = session_read_call(), .max_reply_bytes = kLong}).message, 6), 0u);
    lab.disconnect(client);
    client.requester.cancel_all();
    lab.reconnect(client);
    lab.pass(tcp_upstream::kTickNs);
    lab.upstream.answer = done;
    lab.call(client, {.payload = get_attr_call(), .max_reply_bytes = 200});
    take_only(lab.upstream.calls.back().connection);
  }
  EXPECT_EQ(lab.count(Counter::unassociated), 3 * lab.options.max_calls);
  EXPECT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kCreditIntervalNs);
    return lab.area->outstanding.load() + lab.area->waiting.load() == 0 &&
           lab.area->pools[0].held.load() == 0 && lab.area->pools[2].held.load() == 0;
  }));
}

TEST_F(Sessions, a_call_that_lost_a_connection_before_it_was_refused_is_a_new_one_on_the_next) {
  LabClient& client = client_with_own();
  // Each connection is lost once with one call on it.
  lab.upstream.answer = nullptr;
  submit(client, get_attr_call(), 200);
  submit(client, session_read_call());
  ASSERT_EQ(connections(2).size(), 2u);
  for (const std::size_t connection : {0, 1}) lab.upstream.close(connection);
  lab.upstream.calls.clear();
  ASSERT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kTickNs);
    return lab.upstream.calls.size() == 2;
  }));
  lab.stop_clock();  // a probe batch lasts until its calls are answered
  const bool read_first = lab.upstream.calls[0].message.size() > lab.upstream.calls[1].message.size();
  const FakeUpstream::Call read = lab.upstream.calls[read_first ? 0 : 1];
  const FakeUpstream::Call short_one = lab.upstream.calls[read_first ? 1 : 0];
  lab.upstream.send(read.connection, record(failed(read, kSequence, kNotBoundToSession)));
  lab.turns(100);
  lab.upstream.send(short_one.connection, record(done(short_one)));
  ASSERT_EQ(connections(3)[2], short_one.connection);
  for (std::uint32_t i = 0; i < 4; ++i) submit(client, get_attr_call(), 200);
  EXPECT_EQ(connections(7).back(), short_one.connection) << "all at once, as nothing is on trial";
  lab.upstream.send(short_one.connection, record(done(lab.upstream.calls[2])));
  lab.turns(100);
  for (std::uint32_t i = 0; i < 4; ++i) submit(client, get_attr_call(), 200);
  EXPECT_EQ(connections(11).back(), short_one.connection);
  lab.start_clock();
}

/// The connection's output refers to the call's memory until it is sent.
TEST(SessionsHalfSent, a_refusal_of_what_has_not_been_sent_is_for_the_client) {
  constexpr std::uint32_t kWriteBytes = 1u << 20, kWrites = 8, kOwn = 0, kOther = 1;
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = lab.add_client();
  lab.upstream.answer = done;
  lab.call(client, {.payload = get_attr_call(), .max_reply_bytes = 200});
  const std::uint32_t first_xid = lab.upstream.calls[0].xid() + 1;
  const auto data = client.memory(kWriteBytes);
  const rdma::Sge piece = client.piece(data);
  Bytes body = sequence(1, 0);
  append(body, words({38, 1, 2, 3, 4, 0, 0, 2, kWriteBytes}));
  const Bytes call = compound(1, 2, body);
  const rpcrdma::ReadItem item{.position = rpcrdma::Position{static_cast<std::uint32_t>(call.size())},
                               .pieces = {&piece, 1}};
  lab.upstream.answer = [](const auto& seen) { return seen.connection == kOwn ? done(seen) : Bytes{}; };
  lab.upstream.reads = false;
  for (std::uint32_t i = 0; i < kWrites; ++i)
    client.submit({.payload = call, .reads = {&item, 1}, .max_reply_bytes = 200});
  lab.turns(500);
  for (std::uint32_t i = 0; i < kWrites; ++i) {
    FakeUpstream::Call sent{.message = words({first_xid + i})};
    lab.upstream.send(kOther, record(failed(sent, kSequence, kNotBoundToSession)));
  }
  lab.turns(500);
  lab.upstream.reads = true;
  ASSERT_TRUE(lab.until([&] {
    return std::all_of(client.finished.begin(), client.finished.end(),
                       [](const auto& one) { return bool{one}; });
  }));
  std::size_t refused = 0;
  for (const auto& outcome : client.finished) {
    ASSERT_EQ(outcome->status, CallStatus::Ok);
    refused += word_at(outcome->message, 6) == kNotBoundToSession;
  }
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(refused + lab.count(Counter::unassociated), kWrites);
}

TEST_F(Sessions, what_looks_alike_in_other_programs_is_for_the_client) {
  LabClient& client = client_with_own();
  lab.upstream.answer = [](const auto& call) { return failed(call, kSequence, kNotBoundToSession); };
  const Bytes read = nfs3(ulb::kNfs3Read, words({4, 1, 0, 0, kLong}));
  EXPECT_EQ(word_at(lab.call(client, {.payload = read, .max_reply_bytes = kLong}).message, 6),
            kNotBoundToSession);
  EXPECT_EQ(lab.count(Counter::unassociated), 0u);
}

TEST_F(Sessions, other_errors_are_for_the_client) {
  for (const auto& [operation, status] :
       {std::pair{kSequence, kBadSession}, {kReadNumber, kNotBoundToSession}, {kSequence, 0u}}) {
    LabClient& client = client_with_own();
    take_only(~std::size_t{0}, operation, status);
    const Outcome outcome = lab.call(client, {.payload = session_read_call(), .max_reply_bytes = kLong});
    EXPECT_EQ(word_at(outcome.message, 6), status) << operation;
  }
  EXPECT_EQ(lab.count(Counter::unassociated), 0u);
}

TEST_F(Sessions, on_a_clients_own_connection_the_error_is_for_the_client) {
  LabClient& client = client_with_own();
  lab.upstream.answer = [](const auto& call) { return failed(call, kSequence, kNotBoundToSession); };
  const Outcome short_one = lab.call(client, {.payload = get_attr_call(), .max_reply_bytes = 200});
  EXPECT_EQ(word_at(short_one.message, 6), kNotBoundToSession);
  const Outcome long_one = lab.call(client, {.payload = session_read_call(), .max_reply_bytes = kLong});
  EXPECT_EQ(word_at(long_one.message, 6), kNotBoundToSession) << "from both";
  EXPECT_EQ(lab.count(Counter::unassociated), 1u);
}

/// The gateway acts on such errors only in records that fit the stream's buffer, like all real ones. This
/// record is longer.
TEST_F(Sessions, an_error_in_a_long_record_is_for_the_client) {
  LabClient& client = client_with_own();
  lab.upstream.answer = [](const auto& call) {
    Bytes reply = failed(call, kSequence, kNotBoundToSession);
    reply.resize(50'000);
    return reply;
  };
  const Outcome outcome = lab.call(client, {.payload = session_read_call(), .max_reply_bytes = kLong});
  EXPECT_EQ(word_at(outcome.message, 6), kNotBoundToSession);
  EXPECT_EQ(lab.count(Counter::unassociated), 0u);
  lab.upstream.answer = done;
  EXPECT_EQ(word_at(lab.call(client, {.payload = session_read_call(), .max_reply_bytes = kLong}).message, 6),
            0u);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
