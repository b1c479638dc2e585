// SPDX-License-Identifier: Apache-2.0
//
// Takes the eligible results out of an RPC reply. Pure, any thread.
#pragma once

#include "cli/conformance/client_message.h"

namespace sluice::conformance {

struct PlacedReply {
  Bytes payload;               ///< without the results that are placed
  std::vector<Bytes> results;  ///< one for each Write chunk that is used, in order
};
/// With this many Write chunks to place results in.
PlacedReply place_results(const RpcCall& call, std::span<const std::byte> reply, std::size_t chunks);

}  // namespace sluice::conformance
