// SPDX-License-Identifier: Apache-2.0
//
// Blocks of a pcapng file (draft-ietf-opsawg-pcapng) with one Ethernet interface. Each function appends one
// block. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sluice::process::pcapng {

using Bytes = std::vector<std::byte>;

struct Packet {
  std::uint64_t time_ns = 0;     ///< nanoseconds since 1970
  std::uint32_t wire_bytes = 0;  ///< length on the wire; `kept` may be shorter
  bool outgoing = false;
  std::span<const std::byte> kept;
};

/// Appends the section header, the first block of a file. `application` is the name of the writer.
void add_section(Bytes& out, std::string_view application);
/// Appends the interface that packets refer to, the second block.
void add_interface(Bytes& out, std::string_view name, std::uint32_t snap_bytes);
void add_packet(Bytes& out, const Packet& packet);
/// Returns the size of a packet block with `kept_bytes` bytes of the packet.
std::size_t packet_block_bytes(std::size_t kept_bytes);
/// Appends the statistics, the last block: the number of packets on the interface, and how many of these are
/// not in the file.
void add_statistics(Bytes& out, std::uint64_t time_ns, std::uint64_t packets, std::uint64_t dropped);
std::size_t statistics_block_bytes();

}  // namespace sluice::process::pcapng
