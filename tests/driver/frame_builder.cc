// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/frame_builder.h"

#include <algorithm>

namespace sluice::rdma::conformance {

using namespace softroce;

Packet make_packet(Opcode opcode, std::uint32_t queue_pair, std::uint32_t psn,
                   std::span<const std::byte> payload) {
  Packet packet;
  packet.bth.opcode = opcode;
  packet.bth.psn = psn & kPsnMask;
  packet.bth.ack_request = true;
  packet.bth.destination_qp = queue_pair;
  packet.bth.pad_bytes = pad_bytes(payload.size());
  packet.kind = traits(opcode);
  return packet;
}

std::vector<std::byte> build_frame(const Route& route, const Packet& packet,
                                   std::span<const std::byte> payload) {
  const std::size_t network = network_header_bytes(route);
  const std::size_t transport = packet.kind.header_bytes + payload.size() + packet.bth.pad_bytes + kIcrcBytes;
  std::vector<std::byte> bytes(network + transport);
  write_network_headers(route, transport, bytes.data());
  const std::size_t at = network + encode_headers(packet, bytes.data() + network);
  std::copy(payload.begin(), payload.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  const std::size_t end = bytes.size() - kIcrcBytes;
  const std::size_t link = kEthernetBytes + (route.vlan == kNoVlan ? 0 : kVlanBytes);
  std::uint32_t crc = icrc_start(bytes.data() + link, network - link, kBthBytes);
  crc = icrc_continue(crc, std::span(bytes).first(end).subspan(network + kBthBytes));
  const auto check = icrc_bytes(crc);
  std::copy(check.begin(), check.end(), bytes.begin() + static_cast<std::ptrdiff_t>(end));
  return bytes;
}

}  // namespace sluice::rdma::conformance
