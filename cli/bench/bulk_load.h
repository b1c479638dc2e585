// SPDX-License-Identifier: Apache-2.0
//
// Load of calls and replies of a given size without DDP-eligible items, which measures the transport with
// long messages. Single-threaded.
#pragma once

#include <cstdint>

#include "cli/bench/client.h"

namespace sluice::bench {

struct BulkConfig {
  std::uint32_t call_bytes = 8192;  ///< bytes of arguments
  std::uint32_t reply_bytes = 0;    ///< bytes of results
  std::uint32_t depth = 8;          ///< calls outstanding on the first connection
  double seconds = 2;
};

struct BulkResult {
  double seconds = 0;
  std::uint64_t operations = 0;
  std::uint64_t errors = 0;
};

BulkResult run_bulk(Client& client, const BulkConfig& config);

}  // namespace sluice::bench
