// SPDX-License-Identifier: Apache-2.0
//
// Behaviour that a client must tolerate: what the documents permit a responder, and what older responders
// did. The provocations of both versions come first, then the ones of version 1.
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
    s.responder.hang_up(*call.visit);  // otherwise a client that waits for its reply sends nothing further
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
  // The written bytes equal the current content, in case the write succeeds.
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

// --- Version 1

namespace {

/// Sends an RDMA_MSG without chunks.
void send(Stage& s, const WaitingCall& to, std::uint32_t xid, std::span<const std::byte> payload,
          std::uint32_t proc = 0) {
  if (!to.visit->ended)
    s.responder.send(*to.visit,
                     RawCall{.xid = xid, .credits = s.responder.grant(), .proc = proc}.with(payload));
}

void errors_end_the_call(Stage& s, std::uint32_t error) {
  const WaitingCall call = s.await_harmless();
  s.responder.refuse(call, error);
  s.expect_done(call);
}

const Provocation kV1Provocations[] = {
    {{"V1_121_a_reply_that_would_fit_comes_in_the_Reply_chunk", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.3: the responder may use an offered Reply chunk for a reply of any size.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_reply_chunk, "a call with a Reply chunk");
       s.responder.serve(call, {.always_reply_chunk = true});
       s.expect_done(call);
     }},
    {{"V1_100_V1_108_a_part_of_a_Write_chunk_is_used", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.2: the returned lengths are those that were written; RFC 1813, 3.3.6: a READ may return "
      "less than was requested.",
      nullptr},
     use_a_part_of_a_write_chunk},
    {{"V1_104_V1_105_padding_is_written_behind_a_result", Level::Decision, Needs::Nothing,
      "RFC 5666, 3.7: old responders round the length up; the count in the reply is the length of the data.",
      nullptr},
     [](Stage& s) {
       const AnsweredRead read =
           await_read(s, "a READ that returns a number of octets that is no multiple of four",
                      [](std::uint32_t count) { return count % 4 != 0; });
       if (bytes_in(read.call.message.header.writes.front()) < padded(read.count()))
         s.skip("Not seen: a Write chunk with room for padding.");
       s.responder.answer(read.call, read.reply, {.padded_results = true});
       s.expect_done(read.call);
     }},
    {{"V1_043_V1_048_the_grant_falls_to_one", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.1: the grant may change with each reply; the latest one applies.", nullptr},
     [](Stage& s) {
       const WaitingCall first =
           s.await([](const WaitingCall& c) { return c.visit->talk.unanswered.size() > 1; },
                   "two calls that are open at once");
       s.responder.set_grant(1);
       s.responder.serve(first);
       const std::uint32_t before = first.visit->talk.too_many;
       s.serve(kCallsWithFewCredits);
       s.expect(first.visit->talk.too_many == before, "one call at a time");
     }},
    {{"V1_055_a_grant_of_zero_stops_nobody", Level::Decision, Needs::Nothing,
      "RFC 5666, 3.3 allowed responders to grant zero; a requester without outstanding calls may send one "
      "call.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       s.responder.serve(call, {.grant = 0});
       try {
         s.expect_done(call);
       } catch (const Failure&) {
         s.responder.hang_up(*call.visit);  // otherwise the connection stays idle
         throw;
       }
     }},
    {{"V1_155_a_reply_with_an_unknown_XID_changes_nothing", Level::Must, Needs::Nothing,
      "RFC 8166, 4.2.1: a reply is matched by its XID; a reply that matches no call is dropped, or the "
      "connection is closed.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       const std::uint32_t unknown = ~call.xid();
       send(s, call, unknown, empty_reply(unknown));
       s.responder.serve(call);
       if (!call.visit->ended) s.expect_done(call);
     }},
    {{"V1_155_a_second_reply_changes_nothing", Level::Must, Needs::Nothing,
      "RFC 8166, 4.2.1: the XID is no longer in use when its reply has been processed.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       const Bytes reply = result(s, call);
       s.responder.answer(call, reply);
       send(s, call, call.xid(), reply);
       if (!call.visit->ended) s.expect_done(call);
     }},
    {{"V1_133_V1_135_RDMA_DONE_and_RDMA_MSGP_are_dropped", Level::Should, Needs::Nothing,
      "RFC 8166, 4.6: a requester uses neither of them.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       if (!call.visit->ended) s.responder.send(*call.visit, words({~call.xid(), 1, s.responder.grant(), 3}));
       Bytes aligned = words({64, 64, 0, 0, 0});
       append(aligned, empty_reply(~call.xid()));
       Bytes message = words({~call.xid(), 1, s.responder.grant(), 2});
       append(message, aligned);
       if (!call.visit->ended) s.responder.send(*call.visit, message);
       s.responder.serve(call);
       s.expect_done(call);
     }},
    {{"V1_157_V1_158_V1_171_a_reverse_call_is_no_reply", Level::Should, Needs::Nothing,
      "RFC 8167, 5.5 and 6: msg_type indicates the direction, not the XID; an end that does not support such "
      "calls may lose the connection, and should drop them or answer with an error.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       send(s, call, call.xid(), rpc_call(call.xid(), kCallBack, 1, 0));
       s.responder.serve(call);
       const std::uint32_t errors = call.visit->talk.errors;
       call.visit->talk.errors = 0;
       s.expect(errors <= 1, "at most one RDMA_ERROR");
       s.expect_done(call);
     }},
    {{"V1_174_an_error_with_an_unknown_XID_changes_nothing", Level::Must, Needs::Nothing,
      "RFC 8166, 4.5: an RDMA_ERROR ends the call of its XID alone, and is not answered.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       if (!call.visit->ended)
         s.responder.send(*call.visit, words({~call.xid(), 1, s.responder.grant(), 4, 2}));
       s.responder.serve(call);
       if (!call.visit->ended) s.expect_done(call);
     }},
    {{"V1_150_a_reply_invalidates_a_handle", Level::Must, Needs::Nothing,
      "RFC 8797, 4: the responder may invalidate one of the call's handles if the requester has announced "
      "support.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_chunks, "a call with chunks");
       const auto& data = call.visit->talk.client_data;
       if (!data || !data->remote_invalidation) {
         s.responder.serve(call);
         s.skip("The client does not offer remote invalidation.");
       }
       s.responder.serve(call, {.invalidate = first_segment(call.message.header).handle});
       s.expect_done(call);
     }},
    {{"V1_152_V1_059_a_call_is_repeated_when_its_connection_ends", Level::Must, Needs::Nothing,
      "RFC 8166, 4.5.4 and RFC 8881, 2.9.2: the client reconnects, and retransmits the call with the same "
      "XID.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_chunks, "a call with chunks");
       s.responder.hang_up(*call.visit);
       s.expect_again(call);
     }},
    {{"V1_062_without_private_data_1024_octets_are_the_limit", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.2: each message has at most 1024 octets unless another threshold is announced.",
      nullptr},
     [](Stage& s) {
       s.responder.set_receive_bytes(0);
       const WaitingCall call = s.await_call();
       s.responder.hang_up(*call.visit);
       s.expect_again(call);
       for (std::uint32_t i = 0; i < kCallsWithFewCredits; ++i) {
         const WaitingCall next = s.await_call();
         s.responder.serve(next);
         s.expect(next.message.bytes.size() <= next.visit->talk.receive_bytes,
                  "no message of more than 1024 octets");
       }
     }},
    {{"V1_147_memory_that_is_to_be_read_cannot_be_written", Level::Must, Needs::Nothing,
      "RFC 8166, 8.1: the memory of a Read chunk is registered for remote reading alone.", nullptr},
     write_to_a_read_chunk},
    {{"V1_139_V1_140_memory_of_an_answered_call_cannot_be_read", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4 and 8.1.3: access ends before the upper layer uses the memory again.", nullptr},
     read_memory_of_an_answered_call},
    {{"V1_027_V1_028_ERR_CHUNK_ends_the_call", Level::Should, Needs::Nothing,
      "RFC 8166, 4.5: an RDMA_ERROR is permanent; the call is not sent again, and the error is not answered.",
      nullptr},
     [](Stage& s) { errors_end_the_call(s, 2); }},
    {{"V1_029_ERR_VERS_ends_the_call", Level::Should, Needs::Nothing,
      "RFC 8166, 4.5.1: calls are not repeated to a responder that supports none of the client's versions.",
      nullptr},
     [](Stage& s) { errors_end_the_call(s, 1); }},
};

}  // namespace

std::span<const Provocation> provocations() {
  return kV1Provocations;
}

// --- Invalid replies of version 1: the client ends the call with an error and continues

namespace {

RawCall reply_to(Stage& s, const WaitingCall& call) {
  return {.xid = call.xid(),
          .credits = s.responder.grant(),
          .writes = call.message.header.writes,
          .reply = std::nullopt};
}

/// Answers a READ with its Write chunk as modified by `change`.
void write_chunk_comes_back(Stage& s, void (*change)(Segments& chunk)) {
  const WaitingCall call = s.await(is_read_with_a_chunk, "a READ with a Write chunk");
  RawCall reply = reply_to(s, call);
  change(reply.writes.front());
  expect_borne(s, call, reply.with(empty_reply(call.xid())));
}

const Provocation kBrokenReplies[] = {
    {{"V1_091_V1_036_a_reply_has_a_Read_list", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.1: no data is fetched, the call ends, and no RDMA_DONE is sent. RFC 5666, 3.5 had Read "
      "lists in replies.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       RawCall reply = reply_to(s, call);
       reply.reads = {{24, kForeign}};
       expect_borne(s, call, reply.with(empty_reply(call.xid())));
     }},
    {{"V1_110_V1_036_a_Write_chunk_comes_back_longer_than_it_was", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.2: the lengths are those that were written, and do not exceed those that were offered.",
      nullptr},
     [](Stage& s) { write_chunk_comes_back(s, [](Segments& chunk) { ++chunk.front().length; }); }},
    {{"V1_110_a_Write_chunk_comes_back_with_another_segment", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.2: a used chunk has as many segments as the offered one.", nullptr},
     [](Stage& s) { write_chunk_comes_back(s, [](Segments& chunk) { chunk.push_back(kForeign); }); }},
    {{"V1_110_a_Write_list_comes_that_was_never_offered", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.2: the Write list of a reply is that of its call.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       RawCall reply = reply_to(s, call);
       reply.writes.push_back({kForeign});
       expect_borne(s, call, reply.with(empty_reply(call.xid())));
     }},
    {{"V1_122_V1_036_an_RDMA_NOMSG_comes_without_a_Reply_chunk_in_the_call", Level::Should, Needs::Nothing,
      "RFC 8166, 4.3.3: no memory was offered that could hold the reply, and the call is not sent again.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call =
           s.await([](const WaitingCall& c) { return Stage::is_harmless(c) && !has_reply_chunk(c); },
                   "a GETATTR, LOOKUP or ACCESS of NFS version 3 without a Reply chunk");
       RawCall reply = reply_to(s, call);
       reply.proc = 1;
       reply.reply = {kForeign};
       expect_borne(s, call, reply.header());
     }},
    {{"V1_036_a_reply_ends_within_its_header", Level::Should, Needs::Nothing,
      "RFC 8166, 4.5: the reply cannot be decoded; its XID identifies the call, and a call that can never "
      "complete is not sent again.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       expect_borne(s, call, std::span<const std::byte>(reply_to(s, call).header()).first(20));
     }},
    {{"V1_036_a_discriminator_of_a_reply_is_neither_0_nor_1", Level::Should, Needs::Nothing,
      "RFC 8166, 4.5: the reply cannot be decoded.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       Bytes message = reply_to(s, call).with(empty_reply(call.xid()));
       xdr::store_u32(message.data() + 16, 2);
       expect_borne(s, call, message);
     }},
    {{"V1_036_V1_005_a_reply_has_two_XIDs", Level::Should, Needs::Nothing,
      "RFC 8166, 4.2.1: rdma_xid is the XID of the RPC message.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       expect_borne(s, call, reply_to(s, call).with(empty_reply(~call.xid())));
     }},
};

}  // namespace

std::span<const Provocation> broken_replies() {
  return kBrokenReplies;
}

}  // namespace sluice::conformance
