// SPDX-License-Identifier: Apache-2.0
//
// Management datagrams of drivers that leave connection management to the control plane (InfiniBand
// Architecture Specification volume 1, 13.4). A value; it also crosses between the planes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/net_address.h"

namespace sluice::rdma {

/// A message of queue pair 1, the general services interface: a management datagram with what is needed to
/// answer it.
struct Datagram {
  static constexpr std::size_t kMaxBytes = 256;
  PeerAddress local;
  PeerAddress remote;
  LinkAddress remote_link{};  ///< of the hop it came from; all zero when sending: the driver resolves it
  std::uint32_t remote_qp = 1;
  std::uint16_t bytes = 0;
  std::array<std::byte, kMaxBytes> data{};
};

}  // namespace sluice::rdma
