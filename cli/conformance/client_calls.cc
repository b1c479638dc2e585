// SPDX-License-Identifier: Apache-2.0
//
// Rules for a client: its calls, their chunks, and what the Upper-Layer Bindings of NFS let it reduce.
#include "cli/conformance/judge.h"
#include "cli/conformance/nfs.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kShortHeaderBytes = 28;
constexpr std::uint32_t kConnectionConfiguration = 100417;

/// Of the argument that a normal Read chunk stands for; null: of none.
const EligibleArgument* argument_at(const CallSight& call, std::uint32_t position) {
  for (const EligibleArgument& argument : call.upper.arguments)
    if (argument.position == position) return &argument;
  return nullptr;
}

/// Calls `ask(chunk)` for each Read chunk but that of position zero, of a call that was understood.
template <typename Ask>
void for_normal_chunks(const Sight& s, Ask ask) {
  if (!s.call->whole || !s.call->upper.known) return;
  for (const ReadChunk& chunk : s.call->chunks)
    if (chunk.position != 0) ask(chunk);
}

/// Calls `ask(chunk, bytes)` for each Write chunk with the most bytes of its result.
template <typename Ask>
void for_sized_results(const Sight& s, Ask ask) {
  const auto& writes = s.message->header.writes;
  const auto& results = s.call->upper.results;
  for (std::size_t i = 0; i < std::min(writes.size(), results.size()); ++i)
    if (results[i] != kAnySize) ask(writes[i], results[i]);
}

bool has_position_zero(const RawCall& header) {
  return std::any_of(header.reads.begin(), header.reads.end(),
                     [](const RawRead& read) { return read.position == 0; });
}

/// The largest reply that may come in a Send or the Reply chunk, if the call tells it.
std::optional<std::uint64_t> largest_reply(const Sight& s) {
  std::optional<std::uint64_t> bytes = s.call->upper.largest_reply;
  if (!bytes) return std::nullopt;
  const auto& results = s.call->upper.results;
  for (std::size_t i = s.message->header.writes.size(); i < results.size(); ++i) *bytes += padded(results[i]);
  return bytes;
}

const Rule kRules[] = {
    {{"V1_005_V1_010_header_and_RPC_message_have_one_XID", Level::Must, Needs::Nothing,
      "RFC 8166, 4.2.1: rdma_xid is the XID of the RPC message, inline or in the chunk of position zero.",
      nullptr},
     "a call",
     What::Call,
     [](const Sight& s, Finding& f) {
       f.holds(word_at(s.call->rpc.message, 0) == s.message->header.xid, "one XID");
     }},
    {{"V1_010_the_message_is_an_RPC_call", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4: with its chunks put in, the message is what it would be on another transport.",
      nullptr},
     "a call",
     What::Call,
     [](const Sight& s, Finding& f) {
       f.holds(s.call->whole, "positions within the message, and no chunk inside another");
       f.holds(!s.call->whole || s.call->rpc.readable,
               "an RPC call of version 2 with credential and verifier");
     }},
    {{"V1_112_all_of_a_long_call_is_in_the_chunk_of_position_zero", Level::Must, Needs::Nothing,
      "RFC 8166, 3.5.3 and 4.3.1: an RDMA_NOMSG has its RPC call in a Read chunk of position zero.", nullptr},
     "an RDMA_NOMSG",
     What::Call,
     [](const Sight& s, Finding& f) {
       if (s.message->header.proc != 1) return;
       f.holds(has_position_zero(s.message->header), "a Read chunk of position zero");
       f.holds(s.call->rpc.readable, "an RPC call in it");
     }},
    {{"V1_117_an_RDMA_MSG_has_no_chunk_of_position_zero", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.1: the RPC message is inline or in such a chunk, not both.", nullptr},
     "an RDMA_MSG with a Read chunk",
     What::Call,
     [](const Sight& s, Finding& f) {
       if (s.message->header.proc == 0 && !s.call->chunks.empty())
         f.holds(!has_position_zero(s.message->header), "no Read chunk of position zero");
     }},
    {{"V1_070_V1_184_only_eligible_arguments_are_reduced", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.2; RFC 8267, 4 and 5: the data of WRITE and the path of a symbolic link, no other "
      "argument.",
      nullptr},
     "a Read chunk of a position other than zero",
     What::Call,
     [](const Sight& s, Finding& f) {
       for_normal_chunks(s, [&](const ReadChunk&) {
         f.holds(!s.call->upper.arguments.empty(),
                 name_of(s.call->rpc) + " without Read chunks: it has no eligible argument");
       });
     }},
    {{"V1_071_V1_191_a_Read_chunk_is_one_argument", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.4: a chunk holds one whole data item.", nullptr},
     "a Read chunk of a position other than zero",
     What::Call,
     [](const Sight& s, Finding& f) {
       std::size_t chunks = 0;
       for_normal_chunks(s, [&](const ReadChunk&) { ++chunks; });
       if (chunks > 0)
         f.holds(chunks <= s.call->upper.arguments.size(),
                 "no more Read chunks than eligible arguments, " +
                     std::to_string(s.call->upper.arguments.size()));
     }},
    {{"V1_012_V1_077_a_position_is_where_the_data_would_be", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.5: counted from the first octet of the RPC message, as if nothing was reduced.",
      nullptr},
     "a Read chunk for an eligible argument",
     What::Call,
     [](const Sight& s, Finding& f) {
       for_normal_chunks(s, [&](const ReadChunk& chunk) {
         if (!s.call->upper.arguments.empty())
           f.holds(argument_at(*s.call, chunk.position) != nullptr,
                   "position " + std::to_string(s.call->upper.arguments.front().position) +
                       ", behind the count word");
       });
     }},
    {{"V1_072_V1_073_the_count_stays_and_is_that_of_the_chunk", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.4: the count word stays in the payload; all elements are in the chunk. Its padding may "
      "be there.",
      nullptr},
     "a Read chunk for an eligible argument",
     What::Call,
     [](const Sight& s, Finding& f) {
       for_normal_chunks(s, [&](const ReadChunk& chunk) {
         const EligibleArgument* argument = argument_at(*s.call, chunk.position);
         if (argument != nullptr)
           f.holds(chunk.length() == argument->bytes || chunk.length() == padded(argument->bytes),
                   "a Read chunk of " + std::to_string(argument->bytes) + " octets");
       });
     }},
    {{"V1_076_the_padding_of_a_reduced_argument_is_gone_from_the_payload", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.5.1: what follows the argument follows at once.", nullptr},
     "a Read chunk of a position other than zero",
     What::Call,
     [](const Sight& s, Finding& f) {
       for_normal_chunks(s, [&](const ReadChunk&) {
         f.holds(s.call->upper.left_over == 0, "nothing behind the last argument");
       });
     }},
    {{"V1_078_positions_are_multiples_of_four", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.5.1: an XDR item begins at a multiple of four.", nullptr},
     "a Read chunk",
     What::Call,
     [](const Sight& s, Finding& f) {
       for (const RawRead& read : s.message->header.reads)
         f.holds(read.position % 4 == 0, "a multiple of four");
     }},
    {{"V1_079_V1_081_positions_do_not_descend", Level::Should, Needs::Nothing,
      "RFC 8166, 4.3.1 leaves the order open; the segments of a chunk stand together, and earlier drafts ask "
      "for ascending chunks.",
      nullptr},
     "two Read segments in one call",
     What::Call,
     [](const Sight& s, Finding& f) {
       const auto& reads = s.message->header.reads;
       for (std::size_t i = 1; i < reads.size(); ++i)
         f.holds(reads[i - 1].position <= reads[i].position, "a Read list in the order of its positions");
     }},
    {{"V1_084_no_padding_is_in_a_Read_chunk", Level::Should, Needs::Nothing,
      "RFC 8166, 3.4.5.1: it need not be sent; the responder puts it in.", nullptr},
     "a Read chunk for an argument whose size is no multiple of four",
     What::Call,
     [](const Sight& s, Finding& f) {
       for_normal_chunks(s, [&](const ReadChunk& chunk) {
         const EligibleArgument* argument = argument_at(*s.call, chunk.position);
         if (argument != nullptr && argument->bytes % 4 != 0)
           f.holds(chunk.length() <= argument->bytes,
                   "the " + std::to_string(argument->bytes) + " octets of the data alone");
       });
     }},
    {{"V1_092_V1_056_a_Write_chunk_has_room_for_the_largest_result", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.6: the requester cannot be asked for more.", nullptr},
     "a READ with a Write chunk",
     What::Call,
     [](const Sight& s, Finding& f) {
       for_sized_results(s, [&](const Segments& chunk, std::uint32_t bytes) {
         if (!chunk.empty())
           f.holds(bytes_in(chunk) >= bytes,
                   "room for " + std::to_string(bytes) + " octets, as READ asks for");
       });
     }},
    {{"V1_103_a_Write_chunk_has_no_room_for_padding", Level::Should, Needs::Nothing,
      "RFC 8166, 3.4.6.2: no padding is written, so that no room is given for it.", nullptr},
     "a READ of a size that is no multiple of four, with a Write chunk",
     What::Call,
     [](const Sight& s, Finding& f) {
       for_sized_results(s, [&](const Segments& chunk, std::uint32_t bytes) {
         if (bytes % 4 != 0)
           f.holds(bytes_in(chunk) <= bytes,
                   "room for the " + std::to_string(bytes) + " octets of the data alone");
       });
     }},
    {{"V1_189_V1_195_a_Write_list_comes_with_eligible_results_alone", Level::Must, Needs::Nothing,
      "RFC 8166, 6.1; RFC 8267: the data of READ and the path of READLINK are eligible.", nullptr},
     "a Write list",
     What::Call,
     [](const Sight& s, Finding& f) {
       if (s.call->upper.known && !s.message->header.writes.empty())
         f.holds(s.message->header.writes.size() <= s.call->upper.results.size(),
                 name_of(s.call->rpc) + " with at most " + std::to_string(s.call->upper.results.size()) +
                     " Write chunks");
     }},
    {{"V1_192_a_READ_that_does_not_fit_has_a_Write_list", Level::Should, Needs::Nothing,
      "RFC 5666, 3.4: it is not recommended to leave it out.", nullptr},
     "a READ of more than the client's threshold",
     What::Call,
     [](const Sight& s, Finding& f) {
       for (const std::uint32_t bytes : s.call->upper.results)
         if (bytes != kAnySize && bytes > s.at.client_receive_bytes())
           f.holds(!s.message->header.writes.empty(), "a Write list");
     }},
    {{"V1_118_V1_119_V1_197_a_reply_that_may_not_fit_has_a_Reply_chunk_of_its_size", Level::Must,
      Needs::Nothing,
      "RFC 8166, 3.5.3 and 4.3.3: a Reply chunk large enough for the largest reply, where that exceeds the "
      "threshold.",
      nullptr},
     "a call whose largest reply exceeds the client's threshold, such as READDIR",
     What::Call,
     [](const Sight& s, Finding& f) {
       const auto bytes = largest_reply(s);
       if (!bytes || kShortHeaderBytes + *bytes <= s.at.client_receive_bytes()) return;
       const auto& reply = s.message->header.reply;
       f.holds(reply && bytes_in(*reply) >= *bytes,
               "a Reply chunk of at least " + std::to_string(*bytes) + " octets for " + name_of(s.call->rpc));
     }},
    {{"V1_137_nothing_configures_the_connection", Level::Must, Needs::Nothing,
      "RFC 8166 has no Connection Configuration Protocol.", nullptr},
     "a call",
     What::Call,
     [](const Sight& s, Finding& f) {
       if (s.call->rpc.readable)
         f.holds(s.call->rpc.program != kConnectionConfiguration, "no call of program 100417");
     }},
    {{"V1_141_memory_that_is_offered_stays_as_it_is", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4: it is the responder's until the reply. It was read twice.", nullptr},
     "a Read chunk",
     What::Call,
     [](const Sight& s, Finding& f) {
       if (!s.call->chunks.empty()) f.holds(!s.call->changed, "the same octets when they are read again");
     }},
    {{"V1_144_handles_change_with_each_call", Level::Should, Needs::Nothing,
      "RFC 8166, 8.1.2: memory is registered for one call, and its handle cannot be told from earlier ones.",
      nullptr},
     "two calls with chunks",
     What::Call,
     [](const Sight& s, Finding& f) {
       const RawCall& header = s.message->header;
       if (!header.reads.empty() || !header.writes.empty() || header.reply)
         f.holds(!s.call->same_handles, "no handle of the call before");
     }},
    {{"V1_153_a_call_that_is_repeated_has_fresh_registrations", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4: handles are those of one connection.", nullptr},
     "a call with chunks that was open when its connection ended",
     What::Call,
     [](const Sight& s, Finding& f) {
       const RawCall& header = s.message->header;
       if (s.call->again && (!header.reads.empty() || !header.writes.empty() || header.reply))
         f.holds(!s.call->old_handles, "other handles than on the old connection");
     }},
    {{"V1_176_what_RPCSEC_GSS_protects_is_not_reduced", Level::Must, Needs::Nothing,
      "RFC 8166, 8.2.2: with integrity or privacy no item is placed by itself.", nullptr},
     "a call with RPCSEC_GSS integrity or privacy",
     What::Call,
     [](const Sight& s, Finding& f) {
       if (s.call->rpc.flavor != 6 || s.call->rpc.gss_service < 2) return;
       const auto& reads = s.message->header.reads;
       f.holds(s.message->header.writes.empty() &&
                   std::all_of(reads.begin(), reads.end(),
                               [](const RawRead& read) { return read.position == 0; }),
               "no Write list, and no Read chunk but that of position zero");
     }},
};

}  // namespace

std::span<const Rule> rules_of_calls() {
  return kRules;
}

}  // namespace sluice::conformance
