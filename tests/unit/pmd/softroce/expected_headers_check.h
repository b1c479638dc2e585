// SPDX-License-Identifier: Apache-2.0
//
// Compares the packet that is found in a frame with expected headers with that of the general path.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>

#include "pmd/softroce/expected_headers.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

enum class Expectation { NotLearned, NotMatched, Agrees, Disagrees };

/// Whether both decoders have found the same packet. `fast` has no other fields of the base header.
inline bool same_packet(const Packet& fast, const Packet& full) {
  const auto of = [](const Packet& packet) {
    const Bth& bth = packet.bth;
    const OpcodeTraits& kind = packet.kind;
    return std::tuple(
        bth.opcode, bth.solicited, bth.pad_bytes, bth.ack_request, bth.psn, kind.header_bytes,
        kind.has_reth ? packet.reth.address : 0, kind.has_reth ? packet.reth.rkey : 0,
        kind.has_reth ? packet.reth.length : 0, kind.has_aeth ? packet.aeth.syndrome : Syndrome::Ack,
        kind.has_aeth ? packet.aeth.value : std::uint8_t{0}, kind.has_aeth ? packet.aeth.msn : 0,
        kind.has_immediate ? packet.immediate : 0, kind.has_ieth ? packet.invalidate_rkey : 0,
        packet.payload.data(), packet.payload.size());
  };
  return of(fast) == of(full);
}

/// Learns from one frame. If the other frame matches, compares what both paths find in it.
inline Expectation compare(std::span<const std::byte> learned, std::span<const std::byte> next) {
  const Frame known = parse(learned);
  const auto known_packet = known.kind == FrameKind::Roce ? decode(known.transport) : std::nullopt;
  if (!known_packet) return Expectation::NotLearned;
  ExpectedHeaders expected;
  expected.learn(learned);
  Expectation result = Expectation::NotMatched;
  with_layout(next, [&]<const HeaderLayout & kLayout>() noexcept {
    Packet fast;
    const std::byte* const bth = next.data() + kLayout.transport_at;
    const std::size_t bytes = expected.match<kLayout>(next.data()) ? transport_bytes_of<kLayout>(next) : 0;
    if (bytes == 0 || !decode_expected(bth, bytes, fast)) return false;
    const Frame frame = parse(next);
    const auto full = frame.kind == FrameKind::Roce ? decode(frame.transport) : std::nullopt;
    const bool agrees =
        full && same_packet(fast, *full) && frame.source == known.source &&
        frame.destination == known.destination && frame.vlan == known.vlan &&
        frame.priority == known.priority && frame.traffic_class == known.traffic_class &&
        frame.udp_source_port == known.udp_source_port && frame.network_offset == kLayout.network_at &&
        frame.transport_offset == kLayout.transport_at && frame.transport.size() == bytes &&
        full->bth.destination_qp == known_packet->bth.destination_qp &&
        full->bth.partition_key == known_packet->bth.partition_key &&
        full->bth.fecn == known_packet->bth.fecn && full->bth.becn == known_packet->bth.becn &&
        std::equal(learned.begin(), learned.begin() + 12, next.begin());
    result = agrees ? Expectation::Agrees : Expectation::Disagrees;
    return true;
  });
  return result;
}

}  // namespace sluice::rdma::softroce
