// SPDX-License-Identifier: Apache-2.0
//
// Extracts the eligible results from an RPC reply. Pure, any thread.
#pragma once

#include "cli/conformance/client_message.h"

namespace sluice::conformance {

struct PlacedReply {
  Bytes payload;               ///< payload without the results that are placed
  std::vector<Bytes> results;  ///< one for each used Write chunk, in order
};
/// Extracts the results for at most `chunks` Write chunks.
PlacedReply place_results(const RpcCall& call, std::span<const std::byte> reply, std::size_t chunks);

}  // namespace sluice::conformance
