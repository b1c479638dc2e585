// SPDX-License-Identifier: Apache-2.0
//
// A version 2 client with a READ outstanding, and the calls and replies of its tests.
#pragma once

#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {

/// Builds a NAME call of `bytes`.
inline Bytes name_call(std::uint32_t bytes) {
  Bytes payload = test_call(0, TestService::kName, {bytes - 44});
  payload.resize(bytes);
  fill_pattern(std::span(payload).subspan(44), 8);
  return payload;
}

inline Bytes read_reply(std::uint32_t xid, const Bytes& call, std::uint32_t returned, std::uint32_t count,
                        std::uint32_t flags = kResponse) {
  // The call has a prefix, a handle, no Read chunks and one Write chunk of one segment.
  const rpcrdma::Segment segment{static_cast<rdma::Rkey>(word_at(call, 9)), returned,
                                 std::uint64_t{word_at(call, 11)} << 32 | word_at(call, 12)};
  return Header{.xid = xid, .flags = flags, .writes = {{segment}}}.with(
      words({xid, 1, 0, 0, 0, 0, 0, count}));
}

inline rpcrdma::Request repeatable() {
  rpcrdma::Request request;
  request.repeatable = true;
  return request;
}

class ReadClient : public Client {
 public:
  explicit ReadClient(const LabOptions& chosen = defaults()) : Client(chosen) {
    memory = device->allocate_memory(1u << 20);
    confirm();
  }
  /// Submits a call with one Write chunk; returns the message as sent.
  Bytes read(std::uint32_t bytes, std::uint32_t count, rpcrdma::Request more = {},
             std::uint32_t first_offer = 0) {
    const rdma::Sge piece{memory.bytes.data(), bytes, memory.lkey};
    const rpcrdma::WriteItem item{.pieces = {&piece, 1}, .first_offer_bytes = first_offer};
    const Bytes payload = test_call(0, TestService::kSource, {bytes});
    more.payload = payload;
    more.writes = {&item, 1};
    more.max_reply_bytes = 64;
    peer->inbox.clear();
    submit(more, {count});
    settle();
    const auto calls = sent();
    EXPECT_EQ(calls.size(), 1u);
    return calls.empty() ? Bytes{} : calls.front();
  }
  rdma::MemoryRegion memory;
};

}  // namespace sluice::conformance::v2
