// SPDX-License-Identifier: Apache-2.0
//
// What connection management agrees on for a reliable connection (InfiniBand Architecture Specification
// volume 1, 12.6). Values; they also cross between the planes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/net_address.h"
#include "pmd/work_request.h"

namespace sluice::rdma {

inline constexpr std::size_t kMaxPrivateData = 92;  ///< InfiniBand CM REQ, the smallest of the messages

/// What connection management has agreed on for a reliable connection, for drivers that leave it to the
/// control plane.
struct RcAttributes {
  PeerAddress local;
  PeerAddress remote;
  LinkAddress remote_link{};
  QueuePairNumber remote_qp{};
  std::uint32_t send_psn = 0;             ///< 24 bits: of our first request
  std::uint32_t receive_psn = 0;          ///< 24 bits: of the peer's first request
  std::uint16_t path_mtu = 1024;          ///< bytes of payload: 256, 512, 1024, 2048 or 4096
  std::uint8_t responder_resources = 16;  ///< RDMA Reads the peer may have outstanding at us
  std::uint8_t initiator_depth = 16;      ///< RDMA Reads we may have outstanding at the peer
  std::uint8_t ack_timeout = 14;          ///< 4.096 us * 2^n without progress until a retry
  std::uint8_t retry_count = 7;           ///< retries without progress until RetryExceeded
  std::uint8_t rnr_retry = 7;             ///< 7 is without end
  std::uint8_t service_level = 0;         ///< 0 to 7; of a VLAN, its priority
  std::uint8_t traffic_class = 0;         ///< of the IP header: DSCP and ECN
};

}  // namespace sluice::rdma
