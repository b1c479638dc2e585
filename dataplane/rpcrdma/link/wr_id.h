// SPDX-License-Identifier: Apache-2.0
//
// Encoding of work request identifiers, which let a work completion find its owner without a table.
#pragma once

#include <cstdint>

namespace sluice::rpcrdma {

enum class WrKind : std::uint8_t {
  Receive,      ///< index: Receive buffer
  Transfer,     ///< RDMA Read or Write that is not the last of its set; index: call slot
  ReadsDone,    ///< last RDMA Read of a call; index: call slot
  ReplySent,    ///< Send of a reply; index: call slot
  CallSent,     ///< Send of a call; index: request slot
  Invalidated,  ///< last LocalInvalidate of a request; index: request slot
  ControlSent,  ///< version 2: grant, properties, or a part of a message; index: control buffer
  Probe,        ///< RDMA Write of no bytes
  Registered,   ///< registration of a region; index: request slot, or kNoWr for the requester's pool
};

inline constexpr std::uint16_t kNoWr = 0xffff;  ///< no index

struct WrId {
  WrKind kind = WrKind::Receive;
  /// Generation of the connection; completions of an earlier generation are dropped.
  std::uint16_t generation = 0;
  std::uint16_t connection = 0;
  std::uint16_t index = 0;

  constexpr std::uint64_t encode() const noexcept {
    return std::uint64_t{static_cast<std::uint8_t>(kind)} << 48 | std::uint64_t{generation} << 32 |
           std::uint64_t{connection} << 16 | index;
  }
  /// Encodes an identifier from `base`, the encoding of the connection with kind and index zero.
  static constexpr std::uint64_t encode(std::uint64_t base, WrKind kind, std::uint16_t index) noexcept {
    return base | std::uint64_t{static_cast<std::uint8_t>(kind)} << 48 | index;
  }
  static constexpr bool same_but_index(std::uint64_t a, std::uint64_t b) noexcept {
    return (a ^ b) >> 16 == 0;
  }
  static constexpr std::uint16_t index_of(std::uint64_t wr_id) noexcept {
    return static_cast<std::uint16_t>(wr_id);
  }
  static constexpr WrId decode(std::uint64_t wr_id) noexcept {
    return {static_cast<WrKind>(wr_id >> 48), static_cast<std::uint16_t>(wr_id >> 32),
            static_cast<std::uint16_t>(wr_id >> 16), static_cast<std::uint16_t>(wr_id)};
  }
};

}  // namespace sluice::rpcrdma
