// SPDX-License-Identifier: Apache-2.0
//
// Messages that several of the safety tests send.
#pragma once

#include <algorithm>
#include <span>

#include "tests/conformance/lab.h"

namespace sluice::conformance {

/// Builds a long call: the RPC message is in a position-zero Read chunk. `call` is an RPC call message of the
/// test program.
inline void send_long_call(RawPeer& peer, std::span<const std::byte> call) {
  const auto memory = peer.expose(call.size(), rdma::kRemoteRead);
  std::copy(call.begin(), call.end(), memory.bytes.begin());
  Bytes message = words({word_at(call, 0), 1, 32, 1, 1, 0, static_cast<std::uint32_t>(memory.segment.handle),
                         memory.segment.length, static_cast<std::uint32_t>(memory.segment.offset >> 32),
                         static_cast<std::uint32_t>(memory.segment.offset), 0, 0, 0});
  peer.send(message);
}

}  // namespace sluice::conformance
