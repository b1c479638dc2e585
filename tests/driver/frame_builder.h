// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::conformance {

/// The packet's kind and padding follow from its opcode and payload.
softroce::Packet make_packet(softroce::Opcode opcode, std::uint32_t queue_pair, std::uint32_t psn,
                             std::span<const std::byte> payload = {});
/// Builds a RoCEv2 frame with a valid invariant CRC. The fields of the packet are used even if they are
/// invalid.
std::vector<std::byte> build_frame(const softroce::Route& route, const softroce::Packet& packet,
                                   std::span<const std::byte> payload = {});

}  // namespace sluice::rdma::conformance
