// SPDX-License-Identifier: Apache-2.0
//
// What provocations have in common, of either version. The thread of the responder.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/conformance/nfs.h"
#include "cli/conformance/stage.h"
#include "cli/conformance/v2_calls.h"

namespace sluice::conformance {

/// READ3resok behind the RPC header and the status: attributes present, their 84 octets, then count, eof, length.
inline constexpr std::size_t kReadCountWord = 6 + 1 + 1 + 21;
/// A program of calls in the reverse direction that no client has.
inline constexpr std::uint32_t kCallBack = 0x40000000;

bool has_chunks(const WaitingCall& call);
bool has_read_chunk(const WaitingCall& call);
bool has_reply_chunk(const WaitingCall& call);
/// A READ of version 3, and nothing else in its lists.
bool is_read_with_a_chunk(const WaitingCall& call);
rpcrdma::Segment first_segment(const RawCall& header);
Bytes empty_reply(std::uint32_t xid);
/// For a message of the responder; no client will have it.
std::uint32_t next_xid();

/// The result of a call; skips without one.
Bytes result(Stage& s, const WaitingCall& call);

/// A READ that the upstream has answered, and what it said.
struct AnsweredRead {
  WaitingCall call;
  Bytes reply;
  std::uint32_t count() const { return word_at(reply, kReadCountWord); }
};
AnsweredRead await_read(Stage& s, const std::string& what, bool (*suits)(std::uint32_t count));

/// An access that has to be refused, which ends the connection. Whether it was.
bool refused(Stage& s, Visit& visit, const rpcrdma::Segment& segment, std::span<const std::byte> written);

/// A reply that cannot be right, which costs the client this call alone.
void expect_borne(Stage& s, const WaitingCall& call, std::span<const std::byte> message);

// Whole provocations of both versions.
void use_a_part_of_a_write_chunk(Stage& s);
void write_to_a_read_chunk(Stage& s);
void read_memory_of_an_answered_call(Stage& s);

}  // namespace sluice::conformance
