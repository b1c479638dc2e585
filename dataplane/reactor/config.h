// SPDX-License-Identifier: Apache-2.0
//
// Configuration of a reactor, fixed for its lifetime.
#pragma once

#include <cstdint>

#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/segment/config_block.h"

namespace sluice::reactor {

/// Settings shared by all connections of gateways to servers.
struct DialConfig {
  std::uint32_t inline_bytes = 4096;
  std::uint32_t call_backs = 0;  ///< credits for the server's own calls

  /// Returns the private data of our connection requests.
  auto private_data() const noexcept {
    return rpcrdma::encode_private_data(
        {.remote_invalidation = false, .send_bytes = inline_bytes, .receive_bytes = inline_bytes});
  }
};

struct ReactorConfig {
  std::uint32_t number = 0;  ///< index of its ReactorArea in the segment
  std::uint32_t cpu = 0;
  std::uint32_t numa_node = 0;
  rpcrdma::ReplyChunkPolicy reply_chunks = rpcrdma::ReplyChunkPolicy::Always;
  std::uint32_t max_version = 1;  ///< highest version of RPC-over-RDMA
  rpcrdma::Version2Config version2;
  std::uint64_t progress_timeout_ns = 0;  ///< see rpcrdma::ConnectionConfig; also the next one
  std::uint64_t probe_after_ns = 0;
  segment::IdlePolicy idle = segment::IdlePolicy::Spin;
  DialConfig dial{};
};

}  // namespace sluice::reactor
