// SPDX-License-Identifier: Apache-2.0
//
// Rules for a client: connections, framing, credits, and the memory that it offers.
#include "cli/conformance/call_checks.h"

namespace sluice::conformance {
namespace {

/// Of a client that begins with another version it is what version 1 says of the rest.
bool of_version_1(const Sight& s) {
  return s.message->header.version == 1;
}

const Rule kRules[] = {
    {{"V1_069_private_data_is_that_of_RFC_8797", Level::Must, Needs::Nothing,
      "RFC 8797, 4: the identifier F6AB0E18, version 1, seven reserved bits that are zero, two sizes.",
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
      "RFC 8166, 4.1 and 4.3: four words, then Read list, Write list and Reply chunk.", nullptr},
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
      "RFC 8166, 3.3.2: header and payload together fit the responder's Receives: what RFC 8797 has told, "
      "else 1024 octets.",
      nullptr},
     "a message",
     What::Message,
     [](const Sight& s, Finding& f) {
       f.holds(s.message->bytes.size() <= s.at.receive_bytes,
               "at most " + std::to_string(s.at.receive_bytes) + " octets in a Send");
     }},
    {{"V1_019_V1_131_V1_134_no_RDMA_MSGP_no_RDMA_DONE_and_no_unknown_type", Level::Must, Needs::Nothing,
      "RFC 8166, 4.6: RDMA_MSGP and RDMA_DONE are not sent; 7.1: another type is another version.", nullptr},
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
      "RFC 8166, 3.3.1: the smaller one of request and grant is the limit.", nullptr},
     "a call",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.message->is_call())
         f.holds(s.at.unanswered.size() <= s.message->header.credits,
                 "at most " + std::to_string(s.message->header.credits) + " unanswered calls, not " +
                     std::to_string(s.at.unanswered.size()));
     }},
    {{"V1_046_V1_059_one_call_alone_begins_a_connection", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.3: one credit until the first reply, on each connection anew.", nullptr},
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
      Needs::Nothing, "RFC 8167, 4.2 and 5.1: three empty chunk fields, one XID, a grant that is not zero.",
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
      "RFC 8166, 3.3.2 and 3.3.3: a Receive is posted for each call before it is sent, of what RFC 8797 has "
      "told or of 1024 octets.",
      nullptr},
     "a reply",
     What::Transfer,
     checks::reply_is_received},
    {{"V1_138_V1_139_the_memory_of_Read_chunks_can_be_read", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4: the memory is registered when the call is sent, and until its reply.", nullptr},
     "a Read chunk",
     What::Transfer,
     checks::read_chunk_can_be_read},
    {{"V1_138_V1_147_the_memory_of_Write_and_Reply_chunks_can_be_written", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4: the memory is registered when the call is sent, and until its reply.", nullptr},
     "a Write chunk or Reply chunk that was used",
     What::Transfer,
     checks::write_chunk_can_be_written},
};

}  // namespace

std::span<const Rule> rules_of_messages() {
  return kRules;
}

}  // namespace sluice::conformance
