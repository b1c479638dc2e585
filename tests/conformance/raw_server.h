// SPDX-License-Identifier: Apache-2.0
//
// Helpers for tests of our requester against a raw server: the received calls, the chunks that they offer,
// and replies built by hand.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <vector>

#include "tests/conformance/raw_call.h"

namespace sluice::conformance {

inline Bytes null_call() {
  return rpc_call(0, kTestProgram, 1, 0);
}

/// Registered memory of the caller.
struct CallerMemory {
  rdma::MemoryRegion region;
  rdma::Sge piece(std::uint32_t from, std::uint32_t bytes) const {
    return {region.bytes.data() + from, bytes, region.lkey};
  }
};
inline CallerMemory caller_memory(ClientLab& lab, std::size_t bytes) {
  return {lab.device->allocate_memory(bytes)};
}

/// Returns the n-th message that the raw server has received.
inline const Bytes& got(ClientLab& lab, std::size_t n) {
  return lab.peer->inbox.at(n).bytes;
}
inline std::uint32_t xid_of(const Bytes& message) {
  return word_at(message, 0);
}

/// A call with two Write chunks of two segments and a Reply chunk, like E3.
struct OfferedCall {
  CallerMemory memory;
  std::array<rdma::Sge, 4> pieces;
  std::array<rpcrdma::WriteItem, 2> items;
  Bytes payload = null_call();
};
inline std::uint32_t submit_offered(ClientLab& lab, OfferedCall& call,
                                    std::vector<std::uint32_t> counts = {}) {
  call.memory = caller_memory(lab, 16384);
  call.pieces = {call.memory.piece(0, 1024), call.memory.piece(2048, 1024), call.memory.piece(4096, 2048),
                 call.memory.piece(8192, 2048)};
  call.items[0].pieces = std::span(call.pieces).first(2);
  call.items[1].pieces = std::span(call.pieces).subspan(2);
  const auto xid = lab.submit(
      {.payload = call.payload, .writes = call.items, .max_reply_bytes = 256, .offer_reply_chunk = true},
      std::move(counts));
  lab.settle();
  return xid.value_or(0);
}

/// The chunk lists that the raw server received, to be returned with other lengths.
struct Offer {
  std::vector<std::vector<rpcrdma::Segment>> writes;
  std::optional<std::vector<rpcrdma::Segment>> reply;
  std::vector<rpcrdma::ReadSegment> reads;
};
inline Offer offer_in(const Bytes& call) {
  const auto decoded = rpcrdma::v1::decode(call);
  EXPECT_EQ(decoded.status, rpcrdma::v1::Decode::Ok);
  Offer offer;
  for (std::uint32_t i = 0; i < decoded.header.chunks.reads.size(); ++i)
    offer.reads.push_back(decoded.header.chunks.reads[i]);
  for (const auto chunk : decoded.header.chunks.writes) {
    offer.writes.emplace_back();
    for (std::uint32_t i = 0; i < chunk.size(); ++i) offer.writes.back().push_back(chunk[i]);
  }
  if (const auto& reply = decoded.header.chunks.reply) {
    offer.reply.emplace();
    for (std::uint32_t i = 0; i < reply->size(); ++i) offer.reply->push_back((*reply)[i]);
  }
  return offer;
}
inline void set_lengths(std::vector<rpcrdma::Segment>& chunk, std::initializer_list<std::uint32_t> lengths) {
  std::size_t i = 0;
  for (const std::uint32_t length : lengths) chunk[i++].length = length;
}
inline Bytes accepted(std::uint32_t xid, std::initializer_list<std::uint32_t> results = {}) {
  Bytes out = words({xid, 1, 0, 0, 0, 0});
  append(out, words(results));
  return out;
}

}  // namespace sluice::conformance
