// SPDX-License-Identifier: Apache-2.0
//
// Management datagrams, for drivers without a ConnectionManager (InfiniBand Architecture Specification volume
// 1, 13.4). A plain value; also copied through shared memory between the planes. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/net_address.h"

namespace sluice::rdma {

/// A management datagram of queue pair 1, the general services interface, with the addresses that a reply
/// needs.
struct Datagram {
  static constexpr std::size_t kMaxBytes = 256;
  PeerAddress local;
  PeerAddress remote;
  LinkAddress remote_link{};  ///< received: address of the last hop; sending: all zero makes the driver
                              ///< resolve it
  std::uint32_t remote_qp = 1;
  std::uint16_t bytes = 0;
  std::array<std::byte, kMaxBytes> data{};
};

}  // namespace sluice::rdma
