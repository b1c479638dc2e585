// SPDX-License-Identifier: Apache-2.0
//
// Blocks of a pcapng file (draft-ietf-opsawg-pcapng) with one Ethernet interface. Each function appends one block.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sluice::process::pcapng {

using Bytes = std::vector<std::byte>;

struct Packet {
  std::uint64_t time_ns = 0;     ///< since 1970
  std::uint32_t wire_bytes = 0;  ///< its length; `kept` may be less of it
  bool outgoing = false;
  std::span<const std::byte> kept;
};

/// First of all: the section. `application` is what has written it.
void add_section(Bytes& out, std::string_view application);
/// Then the interface that packets refer to.
void add_interface(Bytes& out, std::string_view name, std::uint32_t snap_bytes);
void add_packet(Bytes& out, const Packet& packet);
/// Size of the block of a packet of which so many bytes are kept.
std::size_t packet_block_bytes(std::size_t kept_bytes);
/// Last of all: how many packets the interface had, and how many of these are not in the file.
void add_statistics(Bytes& out, std::uint64_t time_ns, std::uint64_t packets, std::uint64_t dropped);
std::size_t statistics_block_bytes();

}  // namespace sluice::process::pcapng
