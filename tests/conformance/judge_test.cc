// SPDX-License-Identifier: Apache-2.0
//
// Every rule that clients are judged by holds for a good client, and is reported as broken for a bad client.
#include "cli/conformance/judge.h"

#include "tests/conformance/judge_cases.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kThreshold = 4096;

/// One message of the client, and its outcome.
struct Step {
  std::string name;
  RawCall header{};
  Bytes payload{};  ///< for "connection": its private data
  Bytes chunk{};    ///< contents of the Read chunks
  std::uint32_t grant = 4;
  std::uint32_t times = 1;
  bool same_xid = false;
  bool answered = true;
  bool changed = false;  ///< the chunks changed while they were read
  std::function<void(Bytes&)> spoil{};
  rdma::WcStatus transfers = rdma::WcStatus::Success;
};

rpcrdma::Segment segment(std::uint32_t handle, std::uint32_t bytes) {
  return {static_cast<rdma::Rkey>(handle), bytes, 0x7F0000001000};
}

Bytes handle_of_a_file() {
  return Bytes(32, std::byte{7});
}

Bytes gss_call(std::uint32_t xid, std::uint32_t service) {
  return words({xid, 0, 2, kNfs, 3, 1, 6, 20, 1, 0, 5, service, 0, 0, 0, 4, 0});
}

Step connection() {
  return {.name = "connection", .payload = words({0xF6AB0E18, 0x01000303})};
}
Step read(const char* name, std::uint32_t xid, std::uint32_t handle, std::uint32_t bytes) {
  return {.name = name,
          .header = {.xid = xid, .writes = {{segment(handle, bytes)}}},
          .payload = read_payload(xid, handle_of_a_file(), 0, bytes)};
}

/// All steps of a good client.
std::vector<Step> good_client() {
  std::vector<Step> steps{connection(), {.name = "null", .header = {.xid = 1}, .payload = null_payload(1)}};
  steps.push_back(read("read", 2, 0x201, 1001));
  steps.push_back(read("large read", 3, 0x301, 65536));
  const Bytes write = write_payload(4, handle_of_a_file(), 0, 5001);
  steps.push_back({.name = "write",
                   .header = {.xid = 4,
                              .reads = {{position_of(write), segment(0x401, 4096)},
                                        {position_of(write), segment(0x402, 905)}}},
                   .payload = write,
                   .chunk = Bytes(5001)});
  steps.push_back({.name = "readdir",
                   .header = {.xid = 5, .reply = {{segment(0x501, 8300)}}},
                   .payload = readdir_payload(5, handle_of_a_file(), 8192)});
  const Bytes lookup = lookup_payload(6, handle_of_a_file(), std::string(200, 'x'));
  steps.push_back({.name = "long",
                   .header = {.xid = 6, .proc = 1, .reads = {{0, segment(0x601, position_of(lookup))}}},
                   .chunk = lookup});
  steps.push_back({.name = "reverse", .header = {.xid = 7}, .payload = words({7, 1, 0, 0, 0, 0})});
  steps.push_back({.name = "error", .header = {.xid = 8, .proc = 4}, .spoil = [](Bytes& m) {
                     m = words({8, 1, 4, 4, 2});
                   }});
  steps.push_back({.name = "gss", .header = {.xid = 9}, .payload = gss_call(9, 2)});
  Step lost = read("lost", 10, 0xA01, 4096);
  lost.answered = false;
  steps.push_back(lost);
  steps.push_back(connection());
  steps.push_back({.name = "first", .header = {.xid = 11}, .payload = null_payload(11)});
  steps.push_back(read("again", 10, 0xA02, 4096));
  return steps;
}

class Stand {
 public:
  std::vector<Result> judge(const std::vector<Step>& steps) {
    for (const Step& step : steps)
      if (step.name == "connection")
        connect(step);
      else
        for (std::uint32_t i = 0; i < step.times; ++i) take(step, step.same_xid ? 0 : i << 16);
    return judge_.results(true);
  }

 private:
  void connect(const Step& step) {
    if (at_.number > 0) judge_.ended(at_);
    at_ = {.number = at_.number + 1, .receive_bytes = kThreshold};
    judge_.connected(at_, step.payload);
  }
  void take(const Step& step, std::uint32_t other_xid) {
    Bytes bytes = step.header.with(step.payload);
    if (step.spoil) step.spoil(bytes);
    xdr::store_u32(bytes.data(), word_at(bytes, 0) + other_xid);
    const ClientMessage message = read_client_message(bytes);
    judge_.came(at_, message);
    if (!message.is_call()) return;
    auto chunks = read_chunks(message.header);
    for (ReadChunk& chunk : chunks) {
      chunk.bytes = step.chunk;
      chunk.bytes.resize(chunk.length());
      judge_.transferred(at_, rdma::WcOpcode::RdmaRead, step.transfers);
    }
    CallSight sight = see_call(message, std::move(chunks));
    sight.changed = step.changed;
    judge_.assembled_call(at_, message, std::move(sight));
    if (!step.answered) return;
    judge_.transferred(at_, rdma::WcOpcode::RdmaWrite, step.transfers);
    judge_.answered(at_, message.header.xid, step.grant);
    judge_.transferred(at_, rdma::WcOpcode::Send, step.transfers);
  }

  Judge judge_;
  Conversation at_;
};

TEST(Judge, a_good_client_keeps_every_rule) {
  expect_each_passed(Stand().judge(good_client()));
}

TEST(Judge, what_is_not_seen_is_skipped_with_the_reason) {
  expect_each_not_seen(Stand().judge({}));
}

using Bad = BadClient<Step>;

std::function<void(Step&)> words_are(std::size_t at, std::uint32_t value) {
  return [=](Step& s) { s.spoil = [=](Bytes& m) { xdr::store_u32(m.data() + at * 4, value); }; };
}
std::function<void(Step&)> unanswered(std::uint32_t times) {
  return [=](Step& s) { s.times = times, s.answered = false; };
}
std::function<void(Step&)> transfers_fail(rdma::WcStatus status) {
  return [=](Step& s) { s.transfers = status; };
}

std::vector<Bad> bad_clients() {
  return {
      {"V1-001", "write", [](Step& s) { s.spoil = [](Bytes& m) { m.resize(60); }; }},
      {"V1-004", "read", words_are(1, 2)},
      {"V1-005", "read", words_are(0, 77)},
      {"V1-005", "long", [](Step& s) { xdr::store_u32(s.chunk.data(), 77); }},
      {"V1-007", "long", [](Step& s) { s.payload = words({0}); }},
      {"V1-008", "error", [](Step& s) { s.spoil = [](Bytes& m) {
                                          m = words({8, 1, 4, 4, 2, 0});
                                        }; }},
      {"V1-009", "write", [](Step& s) { s.payload.resize(kThreshold); }},
      {"V1-010", "null", [](Step& s) { xdr::store_u32(s.payload.data() + 8, 3); }},
      {"V1-010", "write", [](Step& s) { s.header.reads[1].position = 400; }},
      {"V1-013", "read", words_are(5, 2)},
      {"V1-019", "null", words_are(3, 5)},
      {"V1-131", "null", words_are(3, 2)},
      {"V1-134", "null", words_are(3, 3)},
      {"V1-040", "read", [](Step& s) { s.header.credits = 0; }},
      {"V1-043", "read", unanswered(5)},
      {"V1-044", "read", [](Step& s) { s.header.credits = 2, s.times = 3, s.answered = false; }},
      {"V1-046", "null", unanswered(2)},
      {"V1-059", "first", unanswered(2)},
      {"V1-155", "read", [](Step& s) { s.times = 2, s.answered = false, s.same_xid = true; }},
      {"V1-160", "reverse", [](Step& s) { s.header.credits = 0; }},
      {"V1-166", "reverse", [](Step& s) { s.header.writes = {{segment(1, 1)}}; }},
      {"V1-166", "reverse", [](Step& s) { s.header.xid = 70; }},
      {"V1-053", "read", transfers_fail(rdma::WcStatus::RnrRetryExceeded)},
      {"V1-061", "read", transfers_fail(rdma::WcStatus::RemoteInvalidRequest)},
      {"V1-139", "write", transfers_fail(rdma::WcStatus::RemoteAccessError)},
      {"V1-147", "read", transfers_fail(rdma::WcStatus::RemoteAccessError)},
      {"V1-069", "connection", [](Step& s) { s.payload[5] = std::byte{4}; }},
      {"V1-069", "connection", [](Step& s) { s.payload[4] = std::byte{2}; }},
      {"V1-112", "long", [](Step& s) { s.header.reads[0].position = 8; }},
      {"V1-117", "write", [](Step& s) { s.header.reads[0].position = 0; }},
      {"V1-070", "readdir",
       [](Step& s) {
         s.header.reads = {{position_of(s.payload) - 4, segment(0x502, 4)}};
         s.chunk = Bytes(s.payload.end() - 4, s.payload.end());
         s.payload.resize(s.payload.size() - 4);
       }},
      {"V1-071", "write", [](Step& s) { s.header.reads[1].position += 4096; }},
      {"V1-077", "write",
       [](Step& s) {
         for (RawRead& read : s.header.reads) read.position -= 4;
       }},
      {"V1-012", "write",
       [](Step& s) {
         for (RawRead& read : s.header.reads) read.position -= 40;
       }},
      {"V1-072", "write", [](Step& s) { s.header.reads[1].segment.length = 900; }},
      {"V1-073", "write", [](Step& s) { s.header.reads[1].segment.length = 909; }},
      {"V1-076", "write", [](Step& s) { s.payload.resize(s.payload.size() + 4); }},
      {"V1-078", "write",
       [](Step& s) {
         for (RawRead& read : s.header.reads) read.position -= 2;
       }},
      {"V1-081", "write", [](Step& s) { s.header.reads[1].position -= 8; }},
      {"V1-084", "write", [](Step& s) { s.header.reads[1].segment.length = 908; }},
      {"V1-092", "read", [](Step& s) { s.header.writes[0][0].length = 1000; }},
      {"V1-103", "read", [](Step& s) { s.header.writes[0][0].length = 1004; }},
      {"V1-189", "readdir", [](Step& s) { s.header.writes = {{segment(0x503, 8192)}}; }},
      {"V1-195", "read", [](Step& s) { s.header.writes.push_back({segment(0x202, 8)}); }},
      {"V1-192", "large read", [](Step& s) { s.header.writes.clear(); }},
      {"V1-118", "readdir", [](Step& s) { s.header.reply.reset(); }},
      {"V1-119", "readdir", [](Step& s) { (*s.header.reply)[0].length = 8192; }},
      {"V1-118", "large read", [](Step& s) { s.header.writes.clear(); }},
      {"V1-137", "null", [](Step& s) { xdr::store_u32(s.payload.data() + 12, 100417); }},
      {"V1-141", "write", [](Step& s) { s.changed = true; }},
      {"V1-144", "large read", [](Step& s) { s.header.writes[0][0].handle = rdma::Rkey{0x201}; }},
      {"V1-153", "again", [](Step& s) { s.header.writes[0][0].handle = rdma::Rkey{0xA01}; }},
      {"V1-176", "gss", [](Step& s) { s.header.writes = {{segment(0x901, 8)}}; }},
  };
}

TEST(Judge, a_bad_client_is_seen_by_the_rule_of_its_row) {
  expect_each_rule_broken(1, good_client(), bad_clients(),
                          [](const std::vector<Step>& steps) { return Stand().judge(steps); });
}

TEST(Judge, V1_043_calls_on_their_way_when_a_grant_falls_are_no_breach) {
  Conversation at;
  at.count_call(1);
  at.count_reply(1, 8);
  for (std::uint32_t xid = 2; xid < 5; ++xid) at.count_call(xid);  // three of eight
  at.count_reply(2, 1);
  for (std::uint32_t xid = 5; xid < 10; ++xid) {
    at.count_call(xid);
    EXPECT_FALSE(at.beyond_grant) << xid;  // the other five may have been in flight
  }
  at.count_call(10);
  EXPECT_TRUE(at.beyond_grant);
}

}  // namespace
}  // namespace sluice::conformance
