// SPDX-License-Identifier: Apache-2.0
//
// Calls and replies of a given size without DDP-eligible items:
// measures the transport with long messages. One thread.
#pragma once

#include <cstdint>

#include "cli/bench/client.h"

namespace sluice::bench {

struct BulkConfig {
  std::uint32_t call_bytes = 8192;  ///< of arguments
  std::uint32_t reply_bytes = 0;    ///< of results
  std::uint32_t depth = 8;          ///< on the first connection
  double seconds = 2;
};

struct BulkResult {
  double seconds = 0;
  std::uint64_t operations = 0;
  std::uint64_t errors = 0;
};

BulkResult run_bulk(Client& client, const BulkConfig& config);

}  // namespace sluice::bench
