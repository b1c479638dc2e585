// SPDX-License-Identifier: Apache-2.0
//
// Senders of a connection, and buffers for messages that belong to no slot or request. Confined to one
// reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/pool_size.h"
#include "dataplane/rpcrdma/wire/header.h"
#include "dataplane/rpcrdma/wire/v2.h"
#include "pmd/memory.h"
#include "pmd/work_request.h"

namespace sluice::rpcrdma::v2 {

/// Identifies a sender. Only one sender at a time may be inside a continued message.
struct Sender {
  enum class Kind : std::uint8_t { None, Reply, Call, Properties };
  Kind kind = Kind::None;
  std::uint16_t index = 0;  ///< index of the call slot, of the request slot, or of the kind of properties
  bool operator==(const Sender&) const = default;
};

/// A message longer than a Send (V2-084).
struct ContinuedMessage {
  Sender sender;
  rpc::Xid xid{};
  HeaderType type = HeaderType::Msg;
  bool response = false;
  std::span<const rdma::Sge> payload;
  std::uint64_t payload_bytes = 0;
  std::size_t last_header_bytes = 0;  ///< header length of the last part, which has the chunks
};

inline constexpr std::size_t kControlBuffers = pool_size({
    {"a grant", 1},
    {"the greeting", 1},
    {"parts of continued messages on their way, of all senders together", 30},
});
inline constexpr std::size_t kControlBytes = 128;

/// Buffers for grants, properties and headers of parts, until their Sends complete.
class ControlBuffers {
 public:
  /// Called at setup. `region` holds kControlBuffers buffers of kControlBytes.
  explicit ControlBuffers(rdma::MemoryRegion region) : region_(region) { reset(); }

  void reset() noexcept {
    free_.clear();
    for (std::size_t i = 0; i < kControlBuffers; ++i) free_.push(static_cast<std::uint16_t>(i));
  }
  bool any_free() const noexcept { return !free_.empty(); }
  bool all_free() const noexcept { return free_.full(); }
  /// Takes a free buffer. Requires any_free().
  std::uint16_t acquire(Sender sender) noexcept {
    SLUICE_INVARIANT_DEBUG(any_free(), pool_balance);
    const std::uint16_t index = free_.pop();
    senders_[index] = sender;
    return index;
  }
  /// Returns the sender that used the buffer.
  Sender release(std::uint16_t index) noexcept {
    SLUICE_INVARIANT_DEBUG(index < kControlBuffers, table_index);
    free_.push(index);
    return senders_[index];
  }
  std::span<std::byte> buffer(std::uint16_t index) noexcept {
    return region_.bytes.subspan(std::size_t{index} * kControlBytes, kControlBytes);
  }
  /// Returns the first `bytes` of a buffer, for a work request.
  rdma::Sge piece(std::uint16_t index, std::size_t bytes) noexcept {
    SLUICE_INVARIANT_DEBUG(bytes <= kControlBytes, buffer_bounds);
    return {buffer(index).data(), static_cast<std::uint32_t>(bytes), region_.lkey};
  }

 private:
  rdma::MemoryRegion region_;
  std::array<Sender, kControlBuffers> senders_;
  FixedStack<std::uint16_t> free_{kControlBuffers};  ///< indices of free buffers
};

}  // namespace sluice::rpcrdma::v2
