// SPDX-License-Identifier: Apache-2.0
//
// Every rule that clients of version 2 are judged by holds for a good client, and is reported as broken for a
// bad client.
#include "cli/conformance/judge.h"
#include "cli/conformance/v2_calls.h"
#include "tests/conformance/judge_cases.h"

namespace sluice::conformance {
namespace {

using v2::Header;

constexpr std::uint32_t kReverseXid = 0x700;

/// One message of the client, and its outcome.
struct Step {
  std::string name;
  Header header{};
  Bytes payload{};
  Bytes chunk{};  ///< contents of the Read chunks
  std::uint32_t times = 1;
  bool answered = true;
  bool by_error = false;   ///< answered with an ERROR
  bool once_more = false;  ///< keeps its XID when it is repeated
  std::function<void(Bytes&)> spoil{};
  rdma::WcStatus transfers = rdma::WcStatus::Success;
};

rpcrdma::Segment segment(std::uint32_t handle, std::uint32_t bytes) {
  return {static_cast<rdma::Rkey>(handle), bytes, 0x7F0000001000};
}

Bytes handle_of_a_file() {
  return Bytes(32, std::byte{7});
}

Bytes gss_call(std::uint32_t xid, std::uint32_t procedure, std::uint32_t service) {
  return words({xid, 0, 2, kNfs, 3, 1, 6, 20, 1, procedure, 5, service, 0, 0, 0, 4, 0});
}

Step read(const char* name, std::uint32_t xid, std::uint32_t handle, std::uint32_t bytes) {
  return {.name = name,
          .header = {.xid = xid, .invalidate = handle, .writes = {{segment(handle, bytes)}}},
          .payload = read_payload(xid, handle_of_a_file(), 0, bytes)};
}
Step greeting(std::uint32_t xid) {
  return {.name = "properties",
          .header = {.xid = xid, .type = v2::kConnProp},
          .payload = words({4, kSendSize, 4, 8192, kReceiveSize, 0, 0x7FFF0001, 3, 0xABCDEF00,
                            kHostAuthentication, 12, 5, 0x01020304, 0x05000000})};
}

/// All steps of a good client.
std::vector<Step> good_client() {
  const auto file = handle_of_a_file();
  std::vector<Step> steps{{.name = "connection"}, greeting(100)};
  steps.push_back({.name = "null", .header = {.xid = 1}, .payload = null_payload(1)});
  steps.push_back(read("read", 2, 0x201, 1001));
  steps.push_back(read("large read", 3, 0x301, 65536));
  const Bytes write = write_payload(4, file, 0, 5001);
  steps.push_back({.name = "write",
                   .header = {.xid = 4,
                              .reads = {{position_of(write), segment(0x401, 4096)},
                                        {position_of(write), segment(0x402, 905)}}},
                   .payload = write,
                   .chunk = Bytes(5001)});
  steps.push_back({.name = "readdir",
                   .header = {.xid = 5, .reply = {{segment(0x501, 8300)}}},
                   .payload = readdir_payload(5, file, 8192)});
  const Bytes lookup = lookup_payload(6, file, std::string(200, 'x'));
  steps.push_back(
      {.name = "long",
       .header = {.xid = 6, .type = v2::kNoMsg, .reads = {{0, segment(0x601, position_of(lookup))}}},
       .chunk = lookup});
  const Bytes parts = lookup_payload(9, file, std::string(200, 'y'));
  steps.push_back({.name = "part",
                   .header = {.xid = 9, .flags = v2::kMore},
                   .payload = Bytes(parts.begin(), parts.begin() + 80)});
  steps.push_back({.name = "grant", .header = {.xid = 0, .type = v2::kNoMsg}});
  steps.push_back(
      {.name = "last part", .header = {.xid = 9}, .payload = Bytes(parts.begin() + 80, parts.end())});
  steps.push_back({.name = "reverse",
                   .header = {.xid = kReverseXid, .flags = v2::kResponse},
                   .payload = words({kReverseXid, 1, 0, 0, 0, 0})});
  steps.push_back(
      {.name = "error",
       .header = {.xid = kReverseXid, .credit = kNoCredits, .type = v2::kError, .flags = v2::kResponse},
       .payload = words({5, 0})});
  steps.push_back({.name = "gss", .header = {.xid = 10}, .payload = gss_call(10, 0, 2)});
  steps.push_back({.name = "gss control", .header = {.xid = 11}, .payload = gss_call(11, 1, 1)});
  Step lost = read("lost", 12, 0xA01, 4096);
  lost.answered = false;
  steps.push_back(lost);
  steps.push_back({.name = "connection"});
  Step refused = greeting(101);
  refused.name = "refused";
  refused.by_error = true;
  steps.push_back(refused);
  steps.push_back({.name = "behind an error", .header = {.xid = 13}, .payload = null_payload(13)});
  steps.push_back(read("again", 12, 0xA02, 4096));
  return steps;
}

class Stand {
 public:
  std::vector<Result> judge(const std::vector<Step>& steps) {
    for (const Step& step : steps)
      if (step.name == "connection")
        connect();
      else
        for (std::uint32_t i = 0; i < step.times; ++i) take(step, step.once_more ? 0 : i << 16);
    return judge_.results(true);
  }

 private:
  void connect() {
    if (at_.number > 0) judge_.ended(at_);
    at_ = {.number = at_.number + 1, .version = 2, .receive_bytes = 4096};
    judge_.connected(at_, {});
  }
  void take(const Step& step, std::uint32_t other_xid) {
    Bytes bytes = step.header.type <= v2::kNoMsg ? step.header.with(step.payload) : step.header.prefix();
    if (step.header.type > v2::kNoMsg) append(bytes, step.payload);
    if (step.spoil) step.spoil(bytes);
    xdr::store_u32(bytes.data(), word_at(bytes, 0) + other_xid);
    ClientMessage message = read_client_message(bytes, 2);
    judge_.came(at_, message);
    if (message.is_rpc() || message.header.proc == v2::kConnProp)
      if (auto whole = at_.v2.join(std::move(message))) take_whole(step, *whole);
    if (step.answered) answer(step);
  }
  void take_whole(const Step& step, const ClientMessage& message) {
    if (message.header.proc == v2::kConnProp)
      return judge_.learned(at_, message, read_properties(message.payload()));
    if (!message.is_call()) return;
    auto chunks = read_chunks(message.header);
    for (ReadChunk& chunk : chunks) {
      chunk.bytes = step.chunk;
      chunk.bytes.resize(chunk.length());
      judge_.transferred(at_, rdma::WcOpcode::RdmaRead, step.transfers);
    }
    judge_.assembled_call(at_, message, see_call(message, std::move(chunks)));
    judge_.transferred(at_, rdma::WcOpcode::RdmaWrite, step.transfers);
    judge_.transferred(at_, rdma::WcOpcode::Send, step.transfers);
    if (step.answered) judge_.answered(at_, message.header.xid, 0);
  }
  /// Sends an error or a reverse call, either of which returns one credit.
  void answer(const Step& step) {
    if (step.by_error)
      judge_.sent(at_, Header{.type = v2::kError, .flags = v2::kResponse}.then({2}));
    else
      judge_.sent(at_, Header{.xid = kReverseXid}.with(rpc_call(kReverseXid, 1, 1, 1)));
  }

  Judge judge_{2};
  Conversation at_;
};

TEST(JudgeV2, a_good_client_keeps_every_rule) {
  expect_each_passed(Stand().judge(good_client()));
}

TEST(JudgeV2, what_is_not_seen_is_skipped_with_the_reason) {
  expect_each_not_seen(Stand().judge({}));
}

using Bad = BadClient<Step>;

std::function<void(Step&)> word_is(std::size_t at, std::uint32_t value) {
  return [=](Step& s) { s.spoil = [=](Bytes& m) { xdr::store_u32(m.data() + at * 4, value); }; };
}
std::function<void(Step&)> size_is(std::size_t bytes) {
  return [=](Step& s) { s.spoil = [=](Bytes& m) { m.resize(bytes); }; };
}
std::function<void(Step&)> unanswered(std::uint32_t times) {
  return [=](Step& s) { s.times = times, s.answered = false; };
}
std::function<void(Step&)> transfers_fail(rdma::WcStatus status) {
  return [=](Step& s) { s.transfers = status; };
}
std::function<void(Step&)> payload_is(Bytes payload) {
  return [=](Step& s) { s.payload = payload; };
}
std::function<void(Step&)> positions_move(std::int32_t by) {
  return [=](Step& s) {
    for (RawRead& read : s.header.reads) read.position += static_cast<std::uint32_t>(by);
  };
}

std::vector<Bad> bad_prefixes() {
  return {
      {"V2-002", "null", size_is(16)},
      {"V2-003", "null", word_is(1, 3)},
      {"V2-017", "read", word_is(1, 1)},
      {"V2-022", "read", word_is(4, 4)},
      {"V2-029", "null", word_is(3, 2)},
      {"V2-029", "null", word_is(3, 6)},
      {"V2-066", "read", word_is(6, 2)},
      {"V2-066", "write", size_is(70)},
      {"V2-007", "properties", [](Step& s) { s.payload.resize(1028); }},
      {"V2-006", "properties",
       [](Step& s) {
         s.header.type = v2::kMsg;
         s.header.reply = {segment(1, 8)};
         s.payload = null_payload(100);
       }},
      {"V2-008", "properties", unanswered(2)},
      {"V2-009", "behind an error", unanswered(2)},
      {"V2-035", "read", unanswered(2)},
      {"V2-036", "read", [](Step& s) { s.header.credit = 1; }},
      {"V2-036", "properties", [](Step& s) { s.header.credit = kNoCredits; }},
      {"V2-041", "grant", [](Step& s) { s.header.xid = 9; }},
      {"V2-041", "grant", [](Step& s) { s.header.invalidate = 5; }},
      {"V2-070", "long", payload_is(words({0}))},
      {"V2-025", "grant", [](Step& s) { s.header.flags = v2::kResponse; }},
      {"V2-025", "properties", [](Step& s) { s.header.flags = v2::kResponse; }},
      {"V2-025", "error", [](Step& s) { s.header.flags = 0; }},
      {"V2-024", "read", [](Step& s) { s.header.flags = v2::kResponse; }},
      {"V2-024", "reverse", [](Step& s) { s.header.flags = 0; }},
      {"V2-020", "reverse", word_is(9, 1)},
      {"V2-047", "null", [](Step& s) { s.payload.resize(4096); }},
      {"V2-047", "properties",
       [](Step& s) {
         s.payload = words({1, kSendSize, 4, 60});
       }},
      {"V2-050", "large read", [](Step& s) { s.header.writes[0][0].length = 1048577; }},
      {"V2-051", "read", [](Step& s) { s.header.writes[0].resize(17, segment(0x202, 1)); }},
      {"V2-086", "last part", [](Step& s) { s.header.xid = 10; }},
      {"V2-086", "last part", [](Step& s) { s.header.type = v2::kConnProp; }},
      {"V2-085", "last part", [](Step& s) { s.header.flags = v2::kResponse; }},
      {"V2-087", "long", [](Step& s) { s.header.flags = v2::kMore; }},
      {"V2-088", "part", [](Step& s) { s.header.reply = {segment(1, 8)}; }},
      {"V2-088", "part", [](Step& s) { s.header.invalidate = 1; }},
      {"V2-093", "part", payload_is({})},
      {"V2-125", "read", [](Step& s) { s.header.invalidate = 0x202; }},
      {"V2-125", "reverse", [](Step& s) { s.header.invalidate = 1; }},
      {"V2-107", "error", [](Step& s) { s.header.xid = 2; }},
      {"V2-106", "error", payload_is(words({5}))},
      {"V2-112", "error", payload_is(words({4, 0}))},
      {"V2-106", "error", payload_is(words({11}))},
      {"V2-044", "error", [](Step& s) { s.header.credit = kNoCredits | 1; }},
      {"V2-134", "reverse", [](Step& s) { s.header.writes = {{segment(1, 1)}}; }},
      {"V2-055", "properties", payload_is(words({2, kSendSize, 4, 8192}))},
      {"V2-055", "properties", payload_is(words({1, kSendSize, 4, 8192, 0}))},
      {"V2-054", "properties", payload_is(words({1, kReverseSupport, 8, 1, 0}))},
      {"V2-054", "properties", payload_is(words({1, kHostAuthentication, 8, 8, 0}))},
      {"V2-052", "properties", payload_is(words({2, kSendSize, 0, kSendSize, 0}))},
      {"V2-058", "properties", [](Step& s) { s.times = 2; }},
  };
}

std::vector<Bad> bad_calls() {
  return {
      {"V2-038", "read", transfers_fail(rdma::WcStatus::RnrRetryExceeded)},
      {"V2-048", "read", transfers_fail(rdma::WcStatus::RemoteInvalidRequest)},
      {"V2-144", "write", transfers_fail(rdma::WcStatus::RemoteAccessError)},
      {"V2-141", "read", transfers_fail(rdma::WcStatus::RemoteAccessError)},
      {"V2-020", "read", word_is(0, 77)},
      {"V2-020", "long", [](Step& s) { xdr::store_u32(s.chunk.data(), 77); }},
      {"V2-084", "part", [](Step& s) { s.payload.resize(8); }},
      {"V2-084", "null", [](Step& s) { xdr::store_u32(s.payload.data() + 8, 3); }},
      {"V2-089", "write", [](Step& s) { s.header.reads[1].position = 400; }},
      {"V2-068", "long", [](Step& s) { s.header.reads[0].position = 8; }},
      {"V2-067", "write", [](Step& s) { s.header.reads[0].position = 0; }},
      {"V2-071", "long", [](Step& s) { --s.header.reads[0].segment.length; }},
      {"V2-071", "write", [](Step& s) { s.header.reads[1].segment.length = 908; }},
      {"V2-071", "read", [](Step& s) { s.header.writes[0][0].length = 1004; }},
      {"V2-072", "write", [](Step& s) { s.payload.resize(s.payload.size() + 4); }},
      {"V2-073", "readdir",
       [](Step& s) {
         s.header.reads = {{position_of(s.payload) - 4, segment(0x502, 4)}};
         s.chunk = Bytes(s.payload.end() - 4, s.payload.end());
         s.payload.resize(s.payload.size() - 4);
       }},
      {"V2-073", "readdir", [](Step& s) { s.header.writes = {{segment(0x503, 8192)}}; }},
      {"V2-074", "write", [](Step& s) { s.header.reads[1].position += 4096; }},
      {"V2-074", "write", [](Step& s) { s.header.reads[1].segment.length = 900; }},
      {"V2-075", "write", positions_move(-4)},
      {"V2-075", "write", positions_move(-2)},
      {"V2-082", "write", [](Step& s) { s.header.reads[1].position -= 8; }},
      {"V2-077", "read", [](Step& s) { s.header.writes[0][0].length = 1000; }},
      {"V2-143", "large read", [](Step& s) { s.header.writes[0][0].handle = rdma::Rkey{0x201}; }},
      {"V2-142", "again", [](Step& s) { s.header.writes[0][0].handle = rdma::Rkey{0xA01}; }},
      {"V2-149", "gss control", [](Step& s) { s.header.writes = {{segment(0xB01, 8)}}; }},
      {"V2-150", "gss", [](Step& s) { s.header.writes = {{segment(0x901, 8)}}; }},
  };
}

TEST(JudgeV2, a_bad_client_is_seen_by_the_rule_of_its_row) {
  std::vector<Bad> all = bad_prefixes();
  for (Bad& bad : bad_calls()) all.push_back(std::move(bad));
  expect_each_rule_broken(2, good_client(), all,
                          [](const std::vector<Step>& steps) { return Stand().judge(steps); });
}

TEST(JudgeV2, V2_034_what_the_limit_says_gives_no_credits) {
  Version2Conversation at;
  at.sent(Header{.xid = 0, .credit = 0xFFFF0000, .type = v2::kNoMsg}.bytes());
  at.came(read_client_message(null_v2(1), 2));
  EXPECT_FALSE(at.beyond_grant());  // the initial credit
  at.came(read_client_message(null_v2(2), 2));
  EXPECT_TRUE(at.beyond_grant());
}

TEST(JudgeV2, V2_041_a_grant_may_come_beyond_all_credits_once) {
  const Bytes grant = Header{.xid = 0, .type = v2::kNoMsg}.bytes();
  Version2Conversation at;
  at.sent(grant);
  for (std::uint32_t xid = 1; xid < 3; ++xid) at.came(read_client_message(null_v2(xid), 2));
  EXPECT_FALSE(at.beyond_grant());
  at.came(read_client_message(grant, 2));
  EXPECT_FALSE(at.beyond_grant());
  at.came(read_client_message(grant, 2));
  EXPECT_TRUE(at.beyond_grant());
}

}  // namespace
}  // namespace sluice::conformance
