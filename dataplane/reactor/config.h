// SPDX-License-Identifier: Apache-2.0
//
// What a reactor is set up with. Fixed for its life.
#pragma once

#include <cstdint>

#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/link/private_data.h"
#include "dataplane/segment/config_block.h"

namespace sluice::reactor {

/// What connections of the gateways to servers have in common.
struct DialConfig {
  std::uint32_t inline_bytes = 4096;
  std::uint32_t call_backs = 0;  ///< credits for the server's own calls

  /// Ours, of a request.
  auto private_data() const noexcept {
    return rpcrdma::encode_private_data(
        {.remote_invalidation = false, .send_bytes = inline_bytes, .receive_bytes = inline_bytes});
  }
};

struct ReactorConfig {
  std::uint32_t number = 0;  ///< of its ReactorArea in the segment
  std::uint32_t cpu = 0;
  std::uint32_t numa_node = 0;
  rpcrdma::ReplyChunkPolicy reply_chunks = rpcrdma::ReplyChunkPolicy::Always;
  std::uint32_t max_version = 1;  ///< of RPC-over-RDMA
  rpcrdma::Version2Config version2;
  std::uint64_t progress_timeout_ns = 0;  ///< of all connections, as is the next: rpcrdma::ConnectionConfig
  std::uint64_t probe_after_ns = 0;
  segment::IdlePolicy idle = segment::IdlePolicy::Spin;
  DialConfig dial{};
};

}  // namespace sluice::reactor
