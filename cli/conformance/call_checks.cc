// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/call_checks.h"

#include <cstdint>
#include <string>

#include "cli/conformance/nfs.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::conformance {
namespace {

/// Returns the argument that a normal Read chunk replaces, or null if there is none.
const EligibleArgument* argument_at(const CallSight& call, std::uint32_t position) {
  for (const EligibleArgument& argument : call.upper.arguments)
    if (argument.position == position) return &argument;
  return nullptr;
}

/// Calls `ask(chunk)` for each Read chunk with a position other than zero, if the upper-layer call could be
/// parsed.
template <typename Ask>
void for_normal_chunks(const Sight& s, Ask ask) {
  if (!s.call->whole || !s.call->upper.known) return;
  for (const ReadChunk& chunk : s.call->chunks)
    if (chunk.position != 0) ask(chunk);
}

/// Calls `ask(chunk, bytes)` for each Write chunk with the largest size of its result.
template <typename Ask>
void for_sized_results(const Sight& s, Ask ask) {
  const auto& writes = s.message->header.writes;
  const auto& results = s.call->upper.results;
  for (std::size_t i = 0; i < smaller_of(writes.size(), results.size()); ++i)
    if (results[i] != kAnySize) ask(writes[i], results[i]);
}

bool has_other_positions(const RawCall& header) {
  for (const RawRead& read : header.reads)
    if (read.position != 0) return true;
  return false;
}

bool has_position_zero(const RawCall& header) {
  for (const RawRead& read : header.reads)
    if (read.position == 0) return true;
  return false;
}

}  // namespace

namespace checks {

void has_one_xid(const Sight& s, Finding& f) {
  f.holds(word_at(s.call->rpc.message, 0) == s.message->header.xid, "one XID");
}

void is_an_rpc_call(const Sight& s, Finding& f) {
  f.holds(s.call->whole, "positions within the message, and no chunk inside another");
  f.holds(!s.call->whole || s.call->rpc.readable, "an RPC call of version 2 with credential and verifier");
}

void long_call_is_in_its_chunk(const Sight& s, Finding& f) {
  if (s.message->header.proc != 1) return;
  f.holds(has_position_zero(s.message->header), "a Read chunk of position zero");
  f.holds(s.call->rpc.readable, "an RPC call in it");
}

void inline_call_has_no_such_chunk(const Sight& s, Finding& f) {
  if (s.message->header.proc == 0 && !s.call->chunks.empty())
    f.holds(!has_position_zero(s.message->header), "no Read chunk of position zero");
}

void argument_is_eligible(const Sight& s, Finding& f) {
  for_normal_chunks(s, [&](const ReadChunk&) {
    f.holds(!s.call->upper.arguments.empty(),
            name_of(s.call->rpc) + " without Read chunks: it has no eligible argument");
  });
}

void chunk_is_one_argument(const Sight& s, Finding& f) {
  std::size_t chunks = 0;
  for_normal_chunks(s, [&](const ReadChunk&) { ++chunks; });
  if (chunks > 0)
    f.holds(chunks <= s.call->upper.arguments.size(),
            "no more Read chunks than eligible arguments, " + std::to_string(s.call->upper.arguments.size()));
}

void position_is_that_of_the_data(const Sight& s, Finding& f) {
  for_normal_chunks(s, [&](const ReadChunk& chunk) {
    if (!s.call->upper.arguments.empty())
      f.holds(
          argument_at(*s.call, chunk.position) != nullptr,
          "position " + std::to_string(s.call->upper.arguments.front().position) + ", behind the count word");
  });
}

void count_is_that_of_the_chunk(const Sight& s, Finding& f) {
  for_normal_chunks(s, [&](const ReadChunk& chunk) {
    const EligibleArgument* argument = argument_at(*s.call, chunk.position);
    if (argument != nullptr)
      f.holds(chunk.length() == argument->bytes || chunk.length() == padded(argument->bytes),
              "a Read chunk of " + std::to_string(argument->bytes) + " octets");
  });
}

void payload_has_no_padding(const Sight& s, Finding& f) {
  for_normal_chunks(s, [&](const ReadChunk&) {
    f.holds(s.call->upper.left_over == 0, "nothing behind the last argument");
  });
}

void positions_are_multiples_of_four(const Sight& s, Finding& f) {
  for (const RawRead& read : s.message->header.reads) f.holds(read.position % 4 == 0, "a multiple of four");
}

void positions_do_not_descend(const Sight& s, Finding& f) {
  const auto& reads = s.message->header.reads;
  for (std::size_t i = 1; i < reads.size(); ++i)
    f.holds(reads[i - 1].position <= reads[i].position, "a Read list in the order of its positions");
}

void chunk_has_no_padding(const Sight& s, Finding& f) {
  for_normal_chunks(s, [&](const ReadChunk& chunk) {
    const EligibleArgument* argument = argument_at(*s.call, chunk.position);
    if (argument != nullptr && argument->bytes % 4 != 0)
      f.holds(chunk.length() <= argument->bytes,
              "the " + std::to_string(argument->bytes) + " octets of the data alone");
  });
}

void has_room_for_the_result(const Sight& s, Finding& f) {
  for_sized_results(s, [&](const Segments& chunk, std::uint32_t bytes) {
    if (!chunk.empty())
      f.holds(bytes_in(chunk) >= bytes, "room for " + std::to_string(bytes) + " octets, as READ asks for");
  });
}

void has_no_room_for_padding(const Sight& s, Finding& f) {
  for_sized_results(s, [&](const Segments& chunk, std::uint32_t bytes) {
    if (bytes % 4 != 0)
      f.holds(bytes_in(chunk) <= bytes,
              "room for the " + std::to_string(bytes) + " octets of the data alone");
  });
}

void result_is_eligible(const Sight& s, Finding& f) {
  if (s.call->upper.known && !s.message->header.writes.empty())
    f.holds(s.message->header.writes.size() <= s.call->upper.results.size(),
            name_of(s.call->rpc) + " with at most " + std::to_string(s.call->upper.results.size()) +
                " Write chunks");
}

void handles_change(const Sight& s, Finding& f) {
  const RawCall& header = s.message->header;
  if (!header.reads.empty() || !header.writes.empty() || header.reply)
    f.holds(!s.call->same_handles, "no handle of the call before");
}

void repeated_call_has_fresh_handles(const Sight& s, Finding& f) {
  const RawCall& header = s.message->header;
  if (s.call->again && (!header.reads.empty() || !header.writes.empty() || header.reply))
    f.holds(!s.call->old_handles, "other handles than on the old connection");
}

void is_not_reduced(const Sight& s, Finding& f) {
  f.holds(s.message->header.writes.empty() && !has_other_positions(s.message->header),
          "no Write list, and no Read chunk but that of position zero");
}

void protected_call_is_not_reduced(const Sight& s, Finding& f) {
  if (s.call->rpc.gss_service > 1) is_not_reduced(s, f);
}

void reply_is_received(const Sight& s, Finding& f) {
  if (s.transfer == rdma::WcOpcode::Send)
    f.holds(s.status == rdma::WcStatus::Success,
            std::string("a reply that is received, but ") + rdma::to_string(s.status));
}

void read_chunk_can_be_read(const Sight& s, Finding& f) {
  if (s.transfer == rdma::WcOpcode::RdmaRead)
    f.holds(s.status == rdma::WcStatus::Success,
            std::string("an RDMA Read that succeeds, but ") + rdma::to_string(s.status));
}

void write_chunk_can_be_written(const Sight& s, Finding& f) {
  if (s.transfer == rdma::WcOpcode::RdmaWrite)
    f.holds(s.status == rdma::WcStatus::Success,
            std::string("an RDMA Write that succeeds, but ") + rdma::to_string(s.status));
}

}  // namespace checks

// --- Rules for a client of version 2: its calls, their chunks, and the items that the Upper-Layer Bindings
// of NFS permit it to reduce

namespace {

const Rule kRules[] = {
    {{"V2_020_header_and_RPC_message_have_one_XID", Level::Must, Needs::Nothing,
      "Version 2, 6.4.2: rdma_xid is the XID of the RPC message, whether that is in one MSG, in parts or in "
      "a chunk.",
      nullptr},
     "a call",
     What::Call,
     checks::has_one_xid},
    {{"V2_084_V2_089_the_message_is_an_RPC_call", Level::Must, Needs::Nothing,
      "Version 2, 4.5: after its parts are joined and its chunks inserted, the message is the same as on any "
      "other transport.",
      nullptr},
     "a call",
     What::Call,
     checks::is_an_rpc_call},
    {{"V2_068_all_of_a_long_call_is_in_the_chunk_of_position_zero", Level::Must, Needs::Nothing,
      "Version 2, 4.5.4 and 6.4.2: a NOMSG has its call in a Read chunk of position zero.", nullptr},
     "a NOMSG",
     What::Call,
     checks::long_call_is_in_its_chunk},
    {{"V2_067_a_MSG_has_no_chunk_of_position_zero", Level::Must, Needs::Nothing,
      "Version 2, 6.4.1: the call is in the message or in such a chunk, not both.", nullptr},
     "a MSG with a Read chunk",
     What::Call,
     checks::inline_call_has_no_such_chunk},
    {{"V2_071_a_chunk_of_position_zero_holds_all_padding", Level::Must, Needs::Nothing,
      "Version 2, 6.3.3.1: the chunk has an RPC message, whose length is a multiple of four.", nullptr},
     "a NOMSG",
     What::Call,
     [](const Sight& s, Finding& f) {
       for (const ReadChunk& chunk : s.call->chunks)
         if (s.message->header.proc == v2::kNoMsg && chunk.position == 0)
           f.holds(chunk.length() % 4 == 0, "a multiple of four");
     }},
    {{"V2_071_a_Read_chunk_has_no_padding", Level::Must, Needs::Nothing,
      "Version 2, 6.3.3.1: the padding of an item is not part of its chunk.", nullptr},
     "a Read chunk for an argument whose size is no multiple of four",
     What::Call,
     checks::chunk_has_no_padding},
    {{"V2_071_a_Write_chunk_has_no_room_for_padding", Level::Must, Needs::Nothing,
      "Version 2, 6.3.3.1: no memory is offered for padding.", nullptr},
     "a READ of a size that is no multiple of four, with a Write chunk",
     What::Call,
     checks::has_no_room_for_padding},
    {{"V2_072_the_padding_of_a_reduced_argument_is_gone_from_the_payload", Level::Must, Needs::Nothing,
      "Version 2, 4.4.4.1: the next item follows the count word immediately.", nullptr},
     "a Read chunk of a position other than zero",
     What::Call,
     checks::payload_has_no_padding},
    {{"V2_073_V2_154_only_eligible_arguments_are_reduced", Level::Must, Needs::Nothing,
      "Version 2, 4.4.2; RFC 8267, 4 and 5: only the data of WRITE and the path of a symbolic link are "
      "eligible.",
      nullptr},
     "a Read chunk of a position other than zero",
     What::Call,
     checks::argument_is_eligible},
    {{"V2_073_a_Write_list_comes_with_eligible_results_alone", Level::Must, Needs::Nothing,
      "Version 2, 4.4.2; RFC 8267: the data of READ and the path of READLINK are eligible.", nullptr},
     "a Write list",
     What::Call,
     checks::result_is_eligible},
    {{"V2_074_a_Read_chunk_is_one_argument", Level::Must, Needs::Nothing,
      "Version 2, 4.4.4: a chunk holds one whole data item.", nullptr},
     "a Read chunk of a position other than zero",
     What::Call,
     checks::chunk_is_one_argument},
    {{"V2_074_the_count_stays_and_is_that_of_the_chunk", Level::Must, Needs::Nothing,
      "Version 2, 4.4.4.1: the count word stays in the payload; all elements are in the chunk.", nullptr},
     "a Read chunk for an eligible argument",
     What::Call,
     checks::count_is_that_of_the_chunk},
    {{"V2_075_a_position_is_where_the_data_would_be", Level::Must, Needs::Nothing,
      "Version 2, 4.4.5: a position counts from the first octet of the unreduced RPC message in one part.",
      nullptr},
     "a Read chunk for an eligible argument",
     What::Call,
     checks::position_is_that_of_the_data},
    {{"V2_075_positions_are_multiples_of_four", Level::Must, Needs::Nothing,
      "Version 2, 4.4.5: an XDR item begins at a multiple of four.", nullptr},
     "a Read chunk",
     What::Call,
     checks::positions_are_multiples_of_four},
    {{"V2_082_positions_do_not_descend", Level::Decision, Needs::Nothing,
      "D2-35: the draft does not define the order; responders may refuse descending positions.", nullptr},
     "two Read segments in one call",
     What::Call,
     checks::positions_do_not_descend},
    {{"V2_077_a_Write_chunk_has_room_for_the_largest_result", Level::Must, Needs::Nothing,
      "Version 2, 4.4.6: a continued reply does not help where a Write chunk is too small.", nullptr},
     "a READ with a Write chunk",
     What::Call,
     checks::has_room_for_the_result},
    {{"V2_143_handles_change_with_each_call", Level::Should, Needs::Nothing,
      "Version 2, 10.1.2: memory is not offered permanently, and its handles cannot be predicted from "
      "earlier ones.",
      nullptr},
     "two calls with chunks",
     What::Call,
     checks::handles_change},
    {{"V2_142_a_call_that_is_repeated_has_fresh_registrations", Level::Must, Needs::Nothing,
      "Version 2, 10.1.1: handles are valid on one connection.", nullptr},
     "a call with chunks that was open when its connection ended",
     What::Call,
     checks::repeated_call_has_fresh_handles},
    {{"V2_149_control_messages_of_RPCSEC_GSS_are_not_reduced", Level::Must, Needs::Nothing,
      "Version 2, 10.2.2: messages that create or destroy a context are in the payload.", nullptr},
     "a call that makes or ends a context of RPCSEC_GSS",
     What::Call,
     [](const Sight& s, Finding& f) {
       if (s.call->rpc.gss_control != 0) checks::is_not_reduced(s, f);
     }},
    {{"V2_150_what_RPCSEC_GSS_protects_is_not_reduced", Level::Must, Needs::Nothing,
      "Version 2, 10.2.2.3: with integrity or privacy no single item is placed.", nullptr},
     "a call with RPCSEC_GSS integrity or privacy",
     What::Call,
     checks::protected_call_is_not_reduced},
};

}  // namespace

std::span<const Rule> rules_of_version_2_calls() {
  return kRules;
}

}  // namespace sluice::conformance
