// SPDX-License-Identifier: Apache-2.0
//
// Connection parameters negotiated by connection management (InfiniBand Architecture Specification volume 1,
// 12.6). Plain values; also copied through shared memory between the planes. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/net_address.h"
#include "pmd/work_request.h"

namespace sluice::rdma {

inline constexpr std::size_t kMaxPrivateData = 92;  ///< bytes in a CM REQ, the smallest of all messages

/// Negotiated attributes of a reliable connection, for drivers without a ConnectionManager.
struct RcAttributes {
  PeerAddress local;
  PeerAddress remote;
  LinkAddress remote_link{};
  QueuePairNumber remote_qp{};
  std::uint32_t send_psn = 0;             ///< 24 bits: PSN of our first request
  std::uint32_t receive_psn = 0;          ///< 24 bits: PSN of the peer's first request
  std::uint16_t path_mtu = 1024;          ///< bytes of payload: 256, 512, 1024, 2048 or 4096
  std::uint8_t responder_resources = 16;  ///< RDMA Reads that the peer may have outstanding
  std::uint8_t initiator_depth = 16;      ///< RDMA Reads that we may have outstanding
  std::uint8_t ack_timeout = 14;          ///< 4.096 us * 2^n without progress until a retry
  std::uint8_t retry_count = 7;           ///< retries without progress until RetryExceeded
  std::uint8_t rnr_retry = 7;             ///< 7 means unlimited
  std::uint8_t service_level = 0;         ///< 0 to 7; the priority in a VLAN tag
  std::uint8_t traffic_class = 0;         ///< in the IP header: DSCP and ECN
};

}  // namespace sluice::rdma
