// SPDX-License-Identifier: Apache-2.0
//
// Rules for a client of version 1: connections, framing, credits, the memory that it offers, and its calls.
#include "cli/conformance/call_checks.h"

#include "cli/conformance/nfs.h"

namespace sluice::conformance {
namespace {

/// Reports whether the message has version 1. The rules do not apply to other messages of a client that
/// begins with another version.
bool of_version_1(const Sight& s) {
  return s.message->header.version == 1;
}

const Rule kMessageRules[] = {
    {{"V1_069_private_data_is_that_of_RFC_8797", Level::Must, Needs::Nothing,
      "RFC 8797, 4: private data has the identifier F6AB0E18, version 1, seven reserved bits that are zero, "
      "and two sizes.",
      nullptr},
     "private data in a connection request",
     What::Connection,
     [](const Sight& s, Finding& f) {
       const Bytes& data = s.at.private_data;
       if (data.size() < 8 || word_at(data, 0) != rpcrdma::kPrivateDataId) return;
       f.holds(data[4] == std::byte{1}, "version 1");
       f.holds((data[5] & std::byte{0xFE}) == std::byte{}, "reserved bits that are zero");
     }},
    {{"V1_001_V1_006_V1_014_V1_015_V1_016_a_header_can_be_read_to_its_end", Level::Must, Needs::Nothing,
      "RFC 8166, 4.1 and 4.3: a header has four words, then Read list, Write list and Reply chunk.", nullptr},
     "an RDMA_MSG or RDMA_NOMSG",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (of_version_1(s) && s.message->header.proc <= 1)
         f.holds(s.message->readable(), "a whole header, but " + s.message->defect);
     }},
    {{"V1_013_a_discriminator_is_0_or_1", Level::Must, Needs::Nothing,
      "RFC 4506, 4.4: the word before an entry is a boolean.", nullptr},
     "an RDMA_MSG or RDMA_NOMSG",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (of_version_1(s) && s.message->header.proc <= 1)
         f.holds(!s.message->odd_discriminator, "0 or 1 before each entry");
     }},
    {{"V1_004_messages_are_of_version_1", Level::Must, Needs::Nothing,
      "RFC 8166, 4.2.2: rdma_vers is 1. A client that knows a later version may begin with it.", nullptr},
     "a message",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.at.messages > 1 || s.message->header.version < 2) f.holds(of_version_1(s), "version 1");
     }},
    {{"V1_009_V1_062_V1_064_no_message_is_longer_than_the_threshold", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.2: header and payload together fit the responder's Receives, of the size announced by "
      "RFC 8797 or else 1024 octets.",
      nullptr},
     "a message",
     What::Message,
     [](const Sight& s, Finding& f) {
       f.holds(s.message->bytes.size() <= s.at.receive_bytes,
               "at most " + std::to_string(s.at.receive_bytes) + " octets in a Send");
     }},
    {{"V1_019_V1_131_V1_134_no_RDMA_MSGP_no_RDMA_DONE_and_no_unknown_type", Level::Must, Needs::Nothing,
      "RFC 8166, 4.6: RDMA_MSGP and RDMA_DONE are not sent; 7.1: another type requires another version.",
      nullptr},
     "a message",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (!of_version_1(s)) return;
       const std::uint32_t proc = s.message->header.proc;
       f.holds(proc == 0 || proc == 1 || proc == 4, "RDMA_MSG, RDMA_NOMSG or RDMA_ERROR");
     }},
    {{"V1_008_an_error_is_its_four_words_and_its_body", Level::Must, Needs::Nothing,
      "RFC 8166, 4.5: ERR_CHUNK has 20 octets, ERR_VERS 28.", nullptr},
     "an RDMA_ERROR of the client",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.message->header.proc != 4) return;
       const std::uint32_t error = word_at(s.message->bytes, 4);
       f.holds((error == 1 && s.message->bytes.size() == 28) || (error == 2 && s.message->bytes.size() == 20),
               "ERR_VERS of 28 octets or ERR_CHUNK of 20");
     }},
    {{"V1_007_an_RDMA_NOMSG_ends_with_its_header", Level::Must, Needs::Nothing,
      "RFC 8166, 4.2.4: no payload follows; the RPC message is in the Read chunk of position zero.", nullptr},
     "an RDMA_NOMSG",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.message->is_rpc() && s.message->header.proc == 1)
         f.holds(s.message->payload().empty(), "nothing behind the chunk fields");
     }},
    {{"V1_040_V1_042_a_call_asks_for_at_least_one_credit", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.1 and 4.2.3: rdma_credit is never zero.", nullptr},
     "a call",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.message->is_call()) f.holds(s.message->header.credits != 0, "an rdma_credit of at least 1");
     }},
    {{"V1_043_V1_045_no_more_calls_are_open_than_granted", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.1: a requester does not exceed the grant of the latest reply.", nullptr},
     "a call behind a first reply",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.message->is_call() && s.at.replies > 0)
         f.holds(!s.at.beyond_grant, "at most " + std::to_string(s.at.grant) + " unanswered calls, not " +
                                         std::to_string(s.at.unanswered.size()));
     }},
    {{"V1_044_no_more_calls_are_open_than_credits_are_asked_for", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.1: the limit is the smaller one of requested and granted credits.", nullptr},
     "a call",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.message->is_call())
         f.holds(s.at.unanswered.size() <= s.message->header.credits,
                 "at most " + std::to_string(s.message->header.credits) + " unanswered calls, not " +
                     std::to_string(s.at.unanswered.size()));
     }},
    {{"V1_046_V1_059_one_call_alone_begins_a_connection", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.3: each connection has one credit until its first reply.", nullptr},
     "a call before the first reply",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.message->is_call() && s.at.replies == 0)
         f.holds(s.at.unanswered.size() == 1, "no second call before the first reply");
     }},
    {{"V1_155_an_XID_is_not_used_again_before_its_reply", Level::Should, Needs::Nothing,
      "RFC 8166, 4.2.1: a reply is matched by its XID. RFC 8881, 2.10.6.2: no call is repeated on its "
      "connection.",
      nullptr},
     "a call",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.message->is_call()) f.holds(!s.at.xid_again, "the XID of no unanswered call");
     }},
    {{"V1_160_V1_166_a_reply_in_the_reverse_direction_is_an_RDMA_MSG_without_chunks", Level::Must,
      Needs::Nothing,
      "RFC 8167, 4.2 and 5.1: the reply has three empty chunk fields, one XID and a grant that is not zero.",
      nullptr},
     "a reply of the client to a reverse call",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (!s.message->is_reply()) return;
       const RawCall& header = s.message->header;
       f.holds(header.reads.empty() && header.writes.empty() && !header.reply, "three empty chunk fields");
       f.holds(word_at(s.message->payload(), 0) == header.xid, "one XID");
       f.holds(header.credits != 0, "a grant of at least 1");
     }},
    {{"V1_053_V1_061_a_reply_finds_a_Receive_that_is_large_enough", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.2 and 3.3.3: a Receive is posted before each call is sent, of the size announced by RFC "
      "8797 or of 1024 octets.",
      nullptr},
     "a reply",
     What::Transfer,
     checks::reply_is_received},
    {{"V1_138_V1_139_the_memory_of_Read_chunks_can_be_read", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4: the memory is registered before the call is sent, and remains so until its reply.",
      nullptr},
     "a Read chunk",
     What::Transfer,
     checks::read_chunk_can_be_read},
    {{"V1_138_V1_147_the_memory_of_Write_and_Reply_chunks_can_be_written", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4: the memory is registered before the call is sent, and remains so until its reply.",
      nullptr},
     "a Write chunk or Reply chunk that was used",
     What::Transfer,
     checks::write_chunk_can_be_written},
};

}  // namespace

std::span<const Rule> rules_of_messages() {
  return kMessageRules;
}

// --- Calls, their chunks, and the items that the Upper-Layer Bindings of NFS permit a client to reduce

namespace {

constexpr std::uint32_t kShortHeaderBytes = 28;
constexpr std::uint32_t kConnectionConfiguration = 100417;

/// Returns the size of the largest reply that may arrive in a Send or the Reply chunk, if the call determines
/// it.
std::optional<std::uint64_t> largest_reply(const Sight& s) {
  std::optional<std::uint64_t> bytes = s.call->upper.largest_reply;
  if (!bytes) return std::nullopt;
  const auto& results = s.call->upper.results;
  for (std::size_t i = s.message->header.writes.size(); i < results.size(); ++i) *bytes += padded(results[i]);
  return bytes;
}

const Rule kCallRules[] = {
    {{"V1_005_V1_010_header_and_RPC_message_have_one_XID", Level::Must, Needs::Nothing,
      "RFC 8166, 4.2.1: rdma_xid is the XID of the RPC message, inline or in the chunk of position zero.",
      nullptr},
     "a call",
     What::Call,
     checks::has_one_xid},
    {{"V1_010_the_message_is_an_RPC_call", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4: after its chunks are inserted, the message is the same as on any other transport.",
      nullptr},
     "a call",
     What::Call,
     checks::is_an_rpc_call},
    {{"V1_112_all_of_a_long_call_is_in_the_chunk_of_position_zero", Level::Must, Needs::Nothing,
      "RFC 8166, 3.5.3 and 4.3.1: an RDMA_NOMSG has its RPC call in a Read chunk of position zero.", nullptr},
     "an RDMA_NOMSG",
     What::Call,
     checks::long_call_is_in_its_chunk},
    {{"V1_117_an_RDMA_MSG_has_no_chunk_of_position_zero", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.1: the RPC message is inline or in such a chunk, not both.", nullptr},
     "an RDMA_MSG with a Read chunk",
     What::Call,
     checks::inline_call_has_no_such_chunk},
    {{"V1_070_V1_184_only_eligible_arguments_are_reduced", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.2; RFC 8267, 4 and 5: only the data of WRITE and the path of a symbolic link are "
      "eligible.",
      nullptr},
     "a Read chunk of a position other than zero",
     What::Call,
     checks::argument_is_eligible},
    {{"V1_071_V1_191_a_Read_chunk_is_one_argument", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.4: a chunk holds one whole data item.", nullptr},
     "a Read chunk of a position other than zero",
     What::Call,
     checks::chunk_is_one_argument},
    {{"V1_012_V1_077_a_position_is_where_the_data_would_be", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.5: a position counts from the first octet of the unreduced RPC message.", nullptr},
     "a Read chunk for an eligible argument",
     What::Call,
     checks::position_is_that_of_the_data},
    {{"V1_072_V1_073_the_count_stays_and_is_that_of_the_chunk", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.4: the count word stays in the payload; all elements are in the chunk, which may "
      "include padding.",
      nullptr},
     "a Read chunk for an eligible argument",
     What::Call,
     checks::count_is_that_of_the_chunk},
    {{"V1_076_the_padding_of_a_reduced_argument_is_gone_from_the_payload", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.5.1: the next item follows the count word immediately.", nullptr},
     "a Read chunk of a position other than zero",
     What::Call,
     checks::payload_has_no_padding},
    {{"V1_078_positions_are_multiples_of_four", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.5.1: an XDR item begins at a multiple of four.", nullptr},
     "a Read chunk",
     What::Call,
     checks::positions_are_multiples_of_four},
    {{"V1_079_V1_081_positions_do_not_descend", Level::Should, Needs::Nothing,
      "RFC 8166, 4.3.1 does not define the order; the segments of a chunk are adjacent, and earlier drafts "
      "require ascending chunks.",
      nullptr},
     "two Read segments in one call",
     What::Call,
     checks::positions_do_not_descend},
    {{"V1_084_no_padding_is_in_a_Read_chunk", Level::Should, Needs::Nothing,
      "RFC 8166, 3.4.5.1: padding need not be sent; the responder inserts it.", nullptr},
     "a Read chunk for an argument whose size is no multiple of four",
     What::Call,
     checks::chunk_has_no_padding},
    {{"V1_092_V1_056_a_Write_chunk_has_room_for_the_largest_result", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4.6: the responder cannot request more memory.", nullptr},
     "a READ with a Write chunk",
     What::Call,
     checks::has_room_for_the_result},
    {{"V1_103_a_Write_chunk_has_no_room_for_padding", Level::Should, Needs::Nothing,
      "RFC 8166, 3.4.6.2: no padding is written, so no memory is offered for it.", nullptr},
     "a READ of a size that is no multiple of four, with a Write chunk",
     What::Call,
     checks::has_no_room_for_padding},
    {{"V1_189_V1_195_a_Write_list_comes_with_eligible_results_alone", Level::Must, Needs::Nothing,
      "RFC 8166, 6.1; RFC 8267: the data of READ and the path of READLINK are eligible.", nullptr},
     "a Write list",
     What::Call,
     checks::result_is_eligible},
    {{"V1_192_a_READ_that_does_not_fit_has_a_Write_list", Level::Should, Needs::Nothing,
      "RFC 5666, 3.4: omitting the Write list is not recommended.", nullptr},
     "a READ of more than the client's threshold",
     What::Call,
     [](const Sight& s, Finding& f) {
       for (const std::uint32_t bytes : s.call->upper.results)
         if (bytes != kAnySize && bytes > s.at.client_receive_bytes())
           f.holds(!s.message->header.writes.empty(), "a Write list");
     }},
    {{"V1_118_V1_119_V1_197_a_reply_that_may_not_fit_has_a_Reply_chunk_of_its_size", Level::Must,
      Needs::Nothing,
      "RFC 8166, 3.5.3 and 4.3.3: the Reply chunk can hold the largest reply if that exceeds the threshold.",
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
      "RFC 8166, 3.4: the memory belongs to the responder until the reply. It was read twice.", nullptr},
     "a Read chunk",
     What::Call,
     [](const Sight& s, Finding& f) {
       if (!s.call->chunks.empty()) f.holds(!s.call->changed, "the same octets when they are read again");
     }},
    {{"V1_144_handles_change_with_each_call", Level::Should, Needs::Nothing,
      "RFC 8166, 8.1.2: memory is registered for one call, and its handle cannot be predicted from earlier "
      "ones.",
      nullptr},
     "two calls with chunks",
     What::Call,
     checks::handles_change},
    {{"V1_153_a_call_that_is_repeated_has_fresh_registrations", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4: handles are valid on one connection.", nullptr},
     "a call with chunks that was open when its connection ended",
     What::Call,
     checks::repeated_call_has_fresh_handles},
    {{"V1_176_what_RPCSEC_GSS_protects_is_not_reduced", Level::Must, Needs::Nothing,
      "RFC 8166, 8.2.2: with integrity or privacy no single item is placed.", nullptr},
     "a call with RPCSEC_GSS integrity or privacy",
     What::Call,
     checks::protected_call_is_not_reduced},
};

}  // namespace

std::span<const Rule> rules_of_calls() {
  return kCallRules;
}

}  // namespace sluice::conformance
