// SPDX-License-Identifier: Apache-2.0
//
// Calls as a raw client writes them: header words by hand, so that defects can be expressed.
#pragma once

#include <optional>
#include <vector>

#include "tests/conformance/lab.h"

namespace sluice::conformance {

struct RawRead {
  std::uint32_t position = 0;
  rpcrdma::Segment segment;
};

struct RawCall {
  std::uint32_t xid = 0x11111111;
  std::uint32_t version = 1;
  std::uint32_t credits = 32;
  std::uint32_t proc = 0;
  std::vector<RawRead> reads{};
  std::vector<std::vector<rpcrdma::Segment>> writes{};
  std::optional<std::vector<rpcrdma::Segment>> reply{};

  Bytes header() const {
    Bytes out = words({xid, version, credits, proc});
    const auto segment = [&out](const rpcrdma::Segment& s) {
      append(out, words({static_cast<std::uint32_t>(s.handle), s.length,
                         static_cast<std::uint32_t>(s.offset >> 32), static_cast<std::uint32_t>(s.offset)}));
    };
    for (const RawRead& read : reads) {
      append(out, words({1, read.position}));
      segment(read.segment);
    }
    append(out, words({0}));
    for (const auto& chunk : writes) {
      append(out, words({1, static_cast<std::uint32_t>(chunk.size())}));
      for (const auto& s : chunk) segment(s);
    }
    append(out, words({0}));
    if (!reply) {
      append(out, words({0}));
    } else {
      append(out, words({1, static_cast<std::uint32_t>(reply->size())}));
      for (const auto& s : *reply) segment(s);
    }
    return out;
  }

  Bytes with(std::span<const std::byte> payload) const {
    Bytes out = header();
    append(out, payload);
    return out;
  }
};

/// RPC call of the test program with argument words.
inline Bytes test_call(std::uint32_t xid, std::uint32_t procedure,
                       std::initializer_list<std::uint32_t> arguments = {},
                       std::uint32_t program = kTestProgram) {
  Bytes out = rpc_call(xid, program, 1, procedure);
  append(out, words(arguments));
  return out;
}

/// Words of a span, for the vectors in tests/golden.
inline Bytes bytes_of(std::span<const std::uint32_t> list) {
  Bytes bytes(list.size() * 4);
  for (std::size_t i = 0; i < list.size(); ++i) xdr::store_u32(bytes.data() + i * 4, list[i]);
  return bytes;
}

inline rpcrdma::Segment part(const rpcrdma::Segment& whole, std::uint32_t from, std::uint32_t bytes) {
  return {whole.handle, bytes, whole.offset + from};
}

inline bool is_err_chunk(const Bytes& answer, std::uint32_t xid) {
  return answer.size() == 20 && word_at(answer, 0) == xid && word_at(answer, 1) == 1 &&
         word_at(answer, 2) >= 1 && word_at(answer, 3) == 4 && word_at(answer, 4) == 2;
}

/// Accept_stat of an RDMA_MSG reply without chunks.
inline std::uint32_t accept_stat(const Bytes& reply) {
  return word_at(reply, 7 + 5);
}

}  // namespace sluice::conformance
