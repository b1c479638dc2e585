// SPDX-License-Identifier: Apache-2.0
//
// Functions that the provocations of both versions share. They run on the thread of the responder.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/conformance/nfs.h"
#include "cli/conformance/stage.h"
#include "cli/conformance/v2_calls.h"

namespace sluice::conformance {

/// READ3resok after the RPC header and the status: attributes present, their 84 octets, then count, eof,
/// length.
inline constexpr std::size_t kReadCountWord = 6 + 1 + 1 + 21;
/// A program of calls in the reverse direction that no client has.
inline constexpr std::uint32_t kCallBack = 0x40000000;
/// Number of calls that a client makes while it has few credits.
inline constexpr std::uint32_t kCallsWithFewCredits = 20;
/// A segment that the client has not offered.
inline constexpr rpcrdma::Segment kForeign{static_cast<rdma::Rkey>(0xEE1), 512, 0x7E0000004000};

bool has_chunks(const WaitingCall& call);
bool has_read_chunk(const WaitingCall& call);
bool has_reply_chunk(const WaitingCall& call);
/// Reports whether the call is a READ of version 3 with exactly one Write chunk.
bool is_read_with_a_chunk(const WaitingCall& call);
rpcrdma::Segment first_segment(const RawCall& header);
Bytes empty_reply(std::uint32_t xid);
/// Returns an XID, unused by clients, for a message of the responder.
std::uint32_t next_xid();

/// Returns the result of a call. Skips the provocation if there is none.
Bytes result(Stage& s, const WaitingCall& call);

/// A READ that the upstream has answered, and the reply.
struct AnsweredRead {
  WaitingCall call;
  Bytes reply;
  std::uint32_t count() const { return word_at(reply, kReadCountWord); }
};
AnsweredRead await_read(Stage& s, const std::string& what, bool (*suits)(std::uint32_t count));

/// Performs an access that must be refused, which ends the connection. Returns whether it was refused.
bool refused(Stage& s, Visit& visit, const rpcrdma::Segment& segment, std::span<const std::byte> written);

/// Sends an invalid reply and checks that it costs the client at most this call.
void expect_borne(Stage& s, const WaitingCall& call, std::span<const std::byte> message);

// Complete provocations of both versions.
void use_a_part_of_a_write_chunk(Stage& s);
void write_to_a_read_chunk(Stage& s);
void read_memory_of_an_answered_call(Stage& s);

}  // namespace sluice::conformance
