// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/call_checks.h"

#include <algorithm>

#include "cli/conformance/nfs.h"

namespace sluice::conformance {
namespace {

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
  const auto& reads = s.message->header.reads;
  f.holds(s.message->header.writes.empty() &&
              std::all_of(reads.begin(), reads.end(), [](const RawRead& read) { return read.position == 0; }),
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
}  // namespace sluice::conformance
