// SPDX-License-Identifier: Apache-2.0
//
// Buffers that one client holds from the pools shared by all clients of a gateway. Callable only on the
// owning reactor.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/server_side.h"

namespace sluice::rdma_server {

/// Limit of one client: 1/kShareOfRecords of the long buffers, but at least two.
inline constexpr std::uint32_t kShareOfRecords = 4;

class ClientBuffers {
 public:
  /// Setup only. The side outlives this object.
  explicit ClientBuffers(ServerSide& side) noexcept : side_(side) {}

  /// Returns a buffer. Its address is null if no buffer is free or if the client already holds its share.
  PoolBuffer acquire(std::size_t bytes) noexcept {
    PoolBuffer buffer = side_.acquire_buffer(bytes);
    if (!buffer.is_record || buffer.address == nullptr) return buffer;
    const std::uint32_t share = larger_of(side_.config().record_buffers / kShareOfRecords, 2u);
    if (records_held_ < share) return ++records_held_, buffer;
    return side_.release_buffer(buffer), PoolBuffer{};
  }
  void release(PoolBuffer& buffer) noexcept {
    if (buffer.address == nullptr) return;
    if (buffer.is_record) --records_held_;
    side_.release_buffer(buffer);
  }
  std::uint32_t records_held() const noexcept { return records_held_; }

  /// Returns where the reply message is kept: in its Reply chunk, after the call's Write chunks, or in the
  /// call's own buffer if the call has no Write chunks and the reply is short. Returns an empty span if no
  /// memory is available.
  std::span<std::byte> keep_message(ClientCall& call, const rpcrdma::Reply& reply) noexcept;

 private:
  ServerSide& side_;
  std::uint32_t records_held_ = 0;
};

}  // namespace sluice::rdma_server
