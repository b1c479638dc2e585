// SPDX-License-Identifier: Apache-2.0
//
// What one client holds of the buffers that the clients of a gateway share. Only the owning reactor may call.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/server_side.h"

namespace sluice::rdma_server {

/// One client holds at most this fraction (1/n) of the long buffers.
inline constexpr std::uint32_t kShareOfRecords = 4;

class ClientBuffers {
 public:
  /// Setup. The side outlives it.
  explicit ClientBuffers(ServerSide& side) noexcept : side_(side) {}

  /// Null address: none is free, or the client has its share.
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

  /// The reply message: in its Reply chunk, or copied behind the call's Write chunks, or into its own buffer if it
  /// has none and the reply is short. Empty: there is no memory.
  std::span<std::byte> keep_message(ClientCall& call, const rpcrdma::Reply& reply) noexcept;

 private:
  ServerSide& side_;
  std::uint32_t records_held_ = 0;
};

}  // namespace sluice::rdma_server
