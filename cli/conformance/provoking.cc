// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/provoking.h"

#include "dataplane/ulb/nfs3.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kPartOfARead = 1000;

std::uint64_t offset_of_read(const WaitingCall& call) {
  xdr::Reader arguments(call.sight.rpc.argument_bytes());
  arguments.opaque(kAnySize);
  return arguments.u64();
}

}  // namespace

bool has_chunks(const WaitingCall& call) {
  return call.message.has_chunks();
}

bool has_read_chunk(const WaitingCall& call) {
  return !call.message.header.reads.empty();
}

bool has_reply_chunk(const WaitingCall& call) {
  return call.message.header.reply.has_value();
}

bool is_read_with_a_chunk(const WaitingCall& call) {
  return call.sight.rpc.is(kNfs, 3, ulb::kNfs3Read) && call.message.header.writes.size() == 1;
}

rpcrdma::Segment first_segment(const RawCall& header) {
  if (!header.reads.empty()) return header.reads.front().segment;
  if (!header.writes.empty() && !header.writes.front().empty()) return header.writes.front().front();
  return header.reply && !header.reply->empty() ? header.reply->front() : rpcrdma::Segment{};
}

Bytes empty_reply(std::uint32_t xid) {
  return words({xid, 1, 0, 0, 0, 0});
}

std::uint32_t next_xid() {
  static std::uint32_t xid = 0x0BAD0000;
  return ++xid;
}

Bytes result(Stage& s, const WaitingCall& call) {
  auto reply = s.responder.result_of(call);
  if (!reply) s.skip("The upstream did not answer.");
  return std::move(*reply);
}

AnsweredRead await_read(Stage& s, const std::string& what, bool (*suits)(std::uint32_t count)) {
  for (;;) {
    WaitingCall call = s.await(is_read_with_a_chunk, what);
    Bytes reply = result(s, call);
    AnsweredRead read{std::move(call), std::move(reply)};
    const bool has_data = word_at(read.reply, 5) == 0 && word_at(read.reply, 6) == 0 &&
                          word_at(read.reply, 7) == 1 && read.reply.size() > (kReadCountWord + 3) * 4;
    if (has_data && suits(read.count())) return read;
    s.responder.answer(read.call, read.reply);
  }
}

bool refused(Stage& s, Visit& visit, const rpcrdma::Segment& segment, std::span<const std::byte> written) {
  visit.unjudged = true;
  if (written.empty())
    s.responder.read(visit, segment);
  else
    s.responder.write(visit, segment, written);
  return !s.responder.settle(visit);
}

void expect_borne(Stage& s, const WaitingCall& call, std::span<const std::byte> message) {
  s.responder.answer_as_it_is(call, message);
  try {
    s.expect_done(call);
  } catch (const Failure&) {
    s.responder.hang_up(*call.visit);  // or a client that still waits for its reply would do nothing more
    throw;
  }
}

void use_a_part_of_a_write_chunk(Stage& s) {
  AnsweredRead read = await_read(s, "a READ of more than 2000 octets with a Write chunk",
                                 [](std::uint32_t count) { return count > 2 * kPartOfARead; });
  Bytes& reply = read.reply;
  xdr::store_u32(reply.data() + kReadCountWord * 4, kPartOfARead);
  xdr::store_u32(reply.data() + (kReadCountWord + 1) * 4, 0);
  xdr::store_u32(reply.data() + (kReadCountWord + 2) * 4, kPartOfARead);
  reply.resize((kReadCountWord + 3) * 4 + kPartOfARead);
  s.responder.answer(read.call, reply);
  const std::uint64_t missing = offset_of_read(read.call) + kPartOfARead;
  const WaitingCall rest = s.await(
      [&](const WaitingCall& c) {
        return c.sight.rpc.is(kNfs, 3, ulb::kNfs3Read) && offset_of_read(c) <= missing &&
               !c.sight.upper.results.empty() && offset_of_read(c) + c.sight.upper.results.front() > missing;
      },
      "a READ of the rest");
  s.responder.serve(rest);
  s.expect_done(read.call);
}

void write_to_a_read_chunk(Stage& s) {
  const WaitingCall call = s.await(has_read_chunk, "a call with a Read chunk");
  if (call.visit->ended) s.skip("The connection ended.");
  // What is there already, should it be written after all.
  const rpcrdma::Segment segment = part(call.message.header.reads.front().segment, 0, 4);
  const bool kept = refused(s, *call.visit, segment, std::span(call.sight.chunks.front().bytes).first(4));
  s.responder.serve(call);
  s.expect(kept, "that an RDMA Write to a Read chunk is refused");
  s.expect_again(call);
}

void read_memory_of_an_answered_call(Stage& s) {
  const WaitingCall call = s.await(has_read_chunk, "a call with a Read chunk");
  s.responder.serve(call);
  s.expect_done(call);
  s.expect(refused(s, *call.visit, part(call.message.header.reads.front().segment, 0, 4), {}),
           "that an RDMA Read of a handle of an earlier call is refused");
}

}  // namespace sluice::conformance
