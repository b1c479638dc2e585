// SPDX-License-Identifier: Apache-2.0
//
// Counts and times of calls: by class, procedure and status, slots by state, and the trace of a connection.
#include <gtest/gtest.h>

#include "tests/conformance/lab.h"
#include "tests/conformance/raw_call.h"

namespace sluice::conformance {
namespace {

std::uint64_t time_ns = 0;
/// Advances by a microsecond with each reading.
std::uint64_t measured_clock() noexcept {
  return time_ns += 1000;
}

class Measurement : public ::testing::Test {
 protected:
  Measurement() {
    lab.engine->measure(*table, &measured_clock);
    lab.engine->set_trace(*trace);
  }
  Bytes ask(std::uint32_t procedure, std::uint32_t program = kTestProgram) {
    const std::uint32_t xid = ++xid_;
    Bytes message = test_call(xid, procedure);
    xdr::store_u32(message.data() + 12, program);
    return lab.call(RawCall{.xid = xid}.with(message));
  }
  std::uint64_t calls(std::uint16_t procedure, segment::CallStatus status,
                      std::uint32_t client_class = 0) const {
    return table->use[client_class][procedure].calls[static_cast<std::size_t>(status)].load();
  }
  std::uint32_t slots(rpcrdma::CallSlot::State state) const {
    return lab.engine->slots_in_state(static_cast<std::size_t>(state));
  }

  std::unique_ptr<segment::CallTable> table = std::make_unique<segment::CallTable>();
  std::unique_ptr<segment::TraceRing> trace = std::make_unique<segment::TraceRing>();
  ServerLab lab;
  std::uint32_t xid_ = 100;
};

TEST_F(Measurement, calls_count_by_procedure_and_status) {
  ASSERT_EQ(table->procedures.load(), 1u + TestService::kTwoSinks + 1u);
  EXPECT_STREQ(table->info[1 + TestService::kList].procedure_name, "list");
  for (int i = 0; i < 3; ++i) ask(TestService::kNull);
  ask(99);
  ask(0, 0x31000000);
  // The call lacks its opaque argument.
  ask(TestService::kName);
  EXPECT_EQ(calls(1 + TestService::kNull, segment::CallStatus::success), 3u);
  EXPECT_EQ(calls(1 + TestService::kName, segment::CallStatus::garbage_args), 1u);
  EXPECT_EQ(calls(segment::kOtherProcedure, segment::CallStatus::proc_unavail), 1u);
  EXPECT_EQ(calls(segment::kOtherProcedure, segment::CallStatus::prog_unavail), 1u);
  // The message does not become a call, because its XIDs differ.
  lab.exchange(RawCall{.xid = 7}.with(test_call(8, 0)));
  EXPECT_EQ(calls(segment::kOtherProcedure, segment::CallStatus::rdma_error), 1u);
  for (std::uint32_t procedure = 0; procedure < table->procedures; ++procedure) {
    std::uint64_t all = 0;
    for (const auto& count : table->use[0][procedure].calls) all += count;
    EXPECT_EQ(table->use[0][procedure].latency.count(), all) << procedure;
  }
  EXPECT_GT(table->use[0][1].latency.sum(), 0u);
}

/// Counts clock readings while the service completes `calls` replies in one iteration.
struct Readings {
  std::uint64_t readings = 0;
  std::uint64_t measured = 0;
};
Readings readings_for(std::uint32_t calls) {
  LabOptions options;
  options.engine.capacity.call_slots = options.connection.credit_grant = 600;
  options.raw_receives = 640;
  ServerLab lab(options);
  const auto table = std::make_unique<segment::CallTable>();
  lab.engine->measure(*table, &measured_clock);
  for (std::uint32_t xid = 1; xid <= calls; ++xid) {
    lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, TestService::kLater)));
    if (xid % 32 == 0) lab.settle();
  }
  lab.settle();
  const std::uint64_t before = time_ns;
  lab.service->complete_later();
  lab.turn();
  const std::uint64_t looks = (time_ns - before) / 1000;
  lab.settle();
  return {looks, table->use[0][1 + TestService::kLater].latency.count()};
}

TEST(CallTimes, a_turn_looks_at_the_clock_once_for_all_its_replies) {
  for (const std::uint32_t calls : {1u, 100u, 512u}) {
    const Readings seen = readings_for(calls);
    EXPECT_EQ(seen.readings, 1u) << calls;
    EXPECT_EQ(seen.measured, calls);
  }
}

/// Consecutive replies of one kind are recorded as one run.
TEST(CallTimes, every_reply_of_a_turn_is_counted_where_it_belongs) {
  constexpr std::size_t kReplies = 2 * rpcrdma::CallTimes::kRunsPerTurn + 10;
  static std::uint64_t readings;
  readings = 0;
  const auto table = std::make_unique<segment::CallTable>();
  rpcrdma::CallTimes times;
  times.measure(*table, []() noexcept { return ++readings, std::uint64_t{1'000'000}; });
  for (std::size_t i = 0; i < kReplies; ++i)
    times.replied(1, static_cast<std::uint16_t>(1 + i % 2), segment::CallStatus::success, 1000);
  for (std::size_t i = 0; i < kReplies; ++i) times.replied(2, 3, segment::CallStatus::success, 1000);
  times.replied(2, 3, segment::CallStatus::garbage_args, 1000);
  times.replied(2, 3, segment::CallStatus::garbage_args, 2000);
  times.end_turn(1'000'000);
  times.end_turn(2'000'000);
  EXPECT_EQ(readings, 2u) << "two times there was no room for another kind";
  for (const segment::ProcedureUse* use : {&table->use[1][1], &table->use[1][2]}) {
    EXPECT_EQ(use->calls[static_cast<std::size_t>(segment::CallStatus::success)].load(), kReplies / 2);
    EXPECT_EQ(use->latency.count(), kReplies / 2);
    EXPECT_EQ(use->latency.sum(), kReplies / 2 * 999'000);
  }
  const segment::ProcedureUse& three = table->use[2][3];
  EXPECT_EQ(three.calls[static_cast<std::size_t>(segment::CallStatus::success)].load(), kReplies);
  EXPECT_EQ(three.calls[static_cast<std::size_t>(segment::CallStatus::garbage_args)].load(), 2u);
  EXPECT_EQ(three.latency.count(), kReplies + 2);
}

/// The iterations mix calls of two procedures, one of which takes nine times as long.
TEST(CallTimes, time_of_procedures_is_estimated_from_samples) {
  constexpr std::uint16_t kShort = 1, kLong = 2;
  static std::uint64_t now;
  now = 1'000'000;
  const auto table = std::make_unique<segment::CallTable>();
  rpcrdma::CallTimes times;
  times.measure(*table, []() noexcept { return now; });
  constexpr std::uint64_t kForAll = 50;  // the device's share, common to all calls of an iteration
  double spent[3]{};
  std::uint64_t all = 0;
  std::uint32_t random = 1;
  for (int turn = 0; turn < 100'000; ++turn) {
    times.begin_turn(now);
    random = random * 1664525 + 1013904223;
    const std::uint32_t in_turn = 1 + (random >> 16) % 5;
    for (std::uint32_t calls = in_turn; calls-- > 0;) {
      random = random * 1664525 + 1013904223;
      const std::uint16_t procedure = (random >> 20) % 3 == 0 ? kLong : kShort;
      const std::uint64_t took = procedure == kLong ? 900 : 100;
      now += took;
      spent[procedure] += static_cast<double>(took) + static_cast<double>(kForAll) / in_turn;
      times.touch(1, procedure);
      times.replied(1, procedure, segment::CallStatus::success, now);
      if (times.sampled()) times.end_sample();
    }
    now += kForAll;
    times.end_turn(now);
    all = now - 1'000'000;
  }
  const auto shown = [&](std::uint16_t procedure) {
    return static_cast<double>(table->use[1][procedure].time_ns.load());
  };
  for (const std::uint16_t procedure : {kShort, kLong})
    EXPECT_NEAR(shown(procedure) / spent[procedure], 1, 0.1) << procedure;
  EXPECT_NEAR((shown(kShort) + shown(kLong)) / static_cast<double>(all), 1, 0.05);
  EXPECT_EQ(table->use[0][segment::kOtherProcedure].time_ns.load(), 0u);
}

TEST_F(Measurement, time_counts_for_the_procedure_and_class_whose_call_makes_progress) {
  constexpr int kTurns = 8 * rpcrdma::CallTimes::kTurnsPerSample;
  lab.connection->set_client_class(2);
  for (int i = 0; i < kTurns; ++i) ask(TestService::kNull);
  const auto time_of = [&](std::uint32_t client_class, std::uint16_t procedure) {
    return table->use[client_class][procedure].time_ns.load();
  };
  const std::uint64_t of_null = time_of(2, 1 + TestService::kNull);
  EXPECT_GT(of_null, 0u);
  EXPECT_EQ(time_of(0, 1 + TestService::kNull), 0u);
  // The completion of its reply is not charged to another procedure either.
  EXPECT_EQ(time_of(0, segment::kOtherProcedure) + time_of(2, segment::kOtherProcedure), 0u);
  // A call that is held has no reply in the iteration in which it arrives.
  for (int i = 0; i < kTurns; ++i) {
    lab.peer->send(RawCall{.xid = 1u << 20 | i}.with(test_call(1u << 20 | i, TestService::kLater)));
    lab.settle();
    if (i % 8 == 7) {
      lab.service->complete_later();
      lab.settle();
    }
  }
  EXPECT_GT(time_of(2, 1 + TestService::kLater), 0u);
}

TEST_F(Measurement, a_connection_counts_for_its_class) {
  ask(TestService::kNull);
  lab.connection->set_client_class(3);
  ask(TestService::kNull);
  ask(TestService::kNull);
  EXPECT_EQ(calls(1, segment::CallStatus::success), 1u);
  EXPECT_EQ(calls(1, segment::CallStatus::success, 3), 2u);
  EXPECT_EQ(lab.engine->counters(0).calls_received, 1u);
  EXPECT_EQ(lab.engine->counters(3).calls_received, 2u);
  lab.exchange(words({1, 9, 1, 0}));  // an unknown version
  EXPECT_EQ(lab.engine->counters(3).bad_version, 1u);
  EXPECT_EQ(lab.engine->counters(0).bad_version, 0u);
  // A class number out of range is counted in the last class.
  lab.connection->set_client_class(1000);
  ask(TestService::kNull);
  EXPECT_EQ(lab.engine->counters(segment::kMaxClasses - 1).calls_received, 1u);
}

TEST_F(Measurement, slots_are_in_one_state_each) {
  using State = rpcrdma::CallSlot::State;
  const std::uint32_t all = slots(State::Free);
  EXPECT_EQ(all, lab.engine->connection_count() * lab.engine->config().capacity.slots());
  for (std::uint32_t xid = 1; xid <= 4; ++xid)
    lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, TestService::kLater)));
  lab.settle();
  EXPECT_EQ(slots(State::Executing), 4u);
  EXPECT_EQ(slots(State::Free), all - 4);
  EXPECT_EQ(lab.connection->responder().take_peak(), 4u);
  EXPECT_EQ(lab.connection->responder().calls(), 4u);
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(slots(State::Free), all);
  EXPECT_EQ(lab.connection->responder().take_peak(), 4u) << "the peak since the last reading";
  EXPECT_EQ(lab.connection->responder().take_peak(), 0u);
}

TEST_F(Measurement, a_traced_connection_leaves_its_calls_with_their_states) {
  ask(TestService::kNull);
  EXPECT_EQ(trace->written.load(), 0u);
  lab.connection->responder().set_traced(true);
  const auto exposed = lab.peer->expose(3000, rdma::kRemoteRead);
  fill_pattern(exposed.bytes, 4);
  Bytes message = test_call(500, TestService::kSink);
  append(message, words({3000}));
  const auto position = static_cast<std::uint32_t>(message.size());
  append(message, words({77}));
  lab.call(RawCall{.xid = 500, .reads = {{position, exposed.segment}}}.with(message));
  lab.settle();
  ASSERT_EQ(trace->written.load(), 1u);
  const auto record = trace->records[0].read();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->xid, 500u);
  EXPECT_EQ(record->procedure, TestService::kSink);
  EXPECT_EQ(record->status, segment::CallStatus::success);
  EXPECT_GE(record->call_bytes, 3000u);
  const auto in = [&](rpcrdma::CallSlot::State state) {
    return record->state_ns[static_cast<std::size_t>(state)];
  };
  EXPECT_GT(in(rpcrdma::CallSlot::State::Pulling), 0u);
  EXPECT_GT(in(rpcrdma::CallSlot::State::Replying), 0u);
  std::uint64_t sum = 0;
  for (const std::uint64_t ns : record->state_ns) sum += ns;
  EXPECT_LE(sum, record->total_ns);
  lab.connection->responder().set_traced(false);
  ask(TestService::kNull);
  EXPECT_EQ(trace->written.load(), 1u);
}

TEST_F(Measurement, a_trace_begins_with_the_first_call_after_it) {
  time_ns = 3600'000'000'000;
  const auto later = [&](std::uint32_t xid) {
    lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, TestService::kLater)));
    lab.settle();
  };
  later(600);
  lab.connection->responder().set_traced(true);
  later(601);
  lab.service->complete_later();
  lab.settle();
  ASSERT_EQ(trace->written.load(), 1u) << "call 600 began before tracing was on";
  const auto record = trace->records[0].read();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->xid, 601u);
  for (const std::uint64_t ns : record->state_ns) EXPECT_LE(ns, record->total_ns);
}

class SlowCalls : public Measurement {
 protected:
  static constexpr std::uint64_t kMillisecondNs = 1'000'000;
  static constexpr std::uint64_t kEndedNs = 77;

  SlowCalls() {
    lab.engine->set_slow_calls(*slow, []() noexcept { return kEndedNs; });
    lab.engine->set_slow_call_ns(5 * kMillisecondNs);
  }
  void begin_later(std::uint32_t xid) {
    lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, TestService::kLater)));
    lab.settle();
  }
  segment::SlowCall last() const {
    return *slow->records[(slow->written.load() - 1) % segment::SlowCallRing::kRecords].read();
  }
  static std::uint64_t in(const segment::SlowCall& call, rpcrdma::CallSlot::State state) {
    return call.call.state_ns[static_cast<std::size_t>(state)];
  }

  std::unique_ptr<segment::SlowCallRing> slow = std::make_unique<segment::SlowCallRing>();
};

TEST_F(SlowCalls, a_call_that_takes_long_is_noted_with_where_its_time_went) {
  ask(TestService::kNull);
  EXPECT_EQ(slow->written.load(), 0u) << "it was fast";
  begin_later(700);
  time_ns += 20 * kMillisecondNs;
  ask(TestService::kNull);  // iterations and completions use one clock
  lab.service->complete_later();
  lab.settle();
  ASSERT_EQ(slow->written.load(), 1u);
  const segment::SlowCall noted = last();
  EXPECT_EQ(noted.number, 0u);
  EXPECT_EQ(noted.call.xid, 700u);
  EXPECT_EQ(noted.call.program, kTestProgram);
  EXPECT_EQ(noted.call.procedure, TestService::kLater);
  EXPECT_EQ(noted.call.status, segment::CallStatus::success);
  EXPECT_EQ(noted.call.connection, lab.connection->number());
  EXPECT_EQ(noted.replied, 1u);
  EXPECT_EQ(noted.ended_ns, kEndedNs);
  EXPECT_GE(in(noted, rpcrdma::CallSlot::State::Executing), 20 * kMillisecondNs);
  EXPECT_LT(in(noted, rpcrdma::CallSlot::State::Replying), kMillisecondNs);
  std::uint64_t sum = 0;
  for (const std::uint64_t ns : noted.call.state_ns) sum += ns;
  EXPECT_EQ(sum, noted.call.total_ns);
  EXPECT_EQ(lab.connection->counters().slow_calls, 1u);
}

/// A reused slot keeps no times of its earlier call.
TEST_F(SlowCalls, each_call_has_its_own_times) {
  for (std::uint32_t i = 0; i < 3; ++i) {
    begin_later(700 + i);
    time_ns += 20 * kMillisecondNs;
    ask(TestService::kNull);
    lab.service->complete_later();
    lab.settle();
    ASSERT_EQ(slow->written.load(), i + 1);
    EXPECT_EQ(last().number, i);
    EXPECT_LT(in(last(), rpcrdma::CallSlot::State::Executing), 30 * kMillisecondNs);
  }
}

TEST_F(SlowCalls, one_whose_client_has_gone_is_noted_without_a_reply) {
  begin_later(700);
  time_ns += 20 * kMillisecondNs;
  ask(TestService::kNull);
  lab.connection->close(rpcrdma::CloseReason::LocalClose);
  lab.settle();
  EXPECT_EQ(slow->written.load(), 0u) << "the service still has it";
  lab.service->complete_later();
  lab.settle();
  ASSERT_EQ(slow->written.load(), 1u);
  EXPECT_EQ(last().call.xid, 700u);
  EXPECT_EQ(last().replied, 0u);
}

TEST_F(SlowCalls, the_oldest_call_in_a_slot_is_found_in_rounds) {
  rpcrdma::Responder& responder = lab.connection->responder();
  constexpr std::uint64_t kRoundNs = 1'000'000'000;
  const auto round = [&] {
    for (std::uint32_t i = 0; i < 2; ++i) lab.engine->poll(lab.now_ns += kRoundNs), responder.tick();
  };
  round();
  EXPECT_EQ(responder.oldest_call().state, rpcrdma::CallSlot::State::Free);
  EXPECT_EQ(responder.oldest_call_age_ns(), 0u);
  begin_later(700);
  time_ns += 20 * kMillisecondNs;
  begin_later(701);
  round();
  EXPECT_EQ(responder.oldest_call().state, rpcrdma::CallSlot::State::Executing);
  EXPECT_GE(responder.oldest_call_age_ns(), 20 * kMillisecondNs);
  lab.service->complete_later();
  lab.settle();
  begin_later(702);
  round();
  EXPECT_LT(responder.oldest_call_age_ns(), 20 * kMillisecondNs);
  lab.service->complete_later();
  lab.settle();
  responder.tick();
  EXPECT_EQ(responder.oldest_call_age_ns(), 0u);
}

TEST_F(SlowCalls, zero_notes_none_and_the_limit_may_change_meanwhile) {
  begin_later(700);
  time_ns += 20 * kMillisecondNs;
  ask(TestService::kNull);
  lab.engine->set_slow_call_ns(0);
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(slow->written.load(), 0u);
  begin_later(701);
  time_ns += 20 * kMillisecondNs;
  ask(TestService::kNull);
  lab.engine->set_slow_call_ns(10 * kMillisecondNs);
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(slow->written.load(), 1u);
}

TEST_F(Measurement, the_trace_keeps_the_newest_calls) {
  lab.connection->responder().set_traced(true);
  for (std::uint32_t i = 0; i < segment::TraceRing::kRecords + 10; ++i) ask(TestService::kNull);
  lab.settle();
  EXPECT_EQ(trace->written.load(), segment::TraceRing::kRecords + 10u);
  EXPECT_EQ(trace->records[9].read()->xid, xid_);
}

TEST_F(Measurement, a_first_grant_is_less_than_there_is_room_for) {
  lab.options.connection.credit_grant = 16;
  lab.options.connection.first_grant = 5;
  lab.reconnect();
  EXPECT_EQ(word_at(ask(TestService::kNull), 2), 5u);
  lab.connection->set_credits(16);
  EXPECT_EQ(word_at(ask(TestService::kNull), 2), 16u);
}

}  // namespace
}  // namespace sluice::conformance
