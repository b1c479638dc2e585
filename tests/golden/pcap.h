// SPDX-License-Identifier: Apache-2.0
//
// Reads classic pcap files of Ethernet frames in the byte order of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace sluice::golden {

inline std::vector<std::vector<std::byte>> read_pcap(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> all((std::istreambuf_iterator<char>(file)), {});
  std::uint32_t magic = 0;
  if (all.size() >= 24) std::memcpy(&magic, all.data(), 4);
  if (magic != 0xA1B2C3D4) throw std::runtime_error("not a pcap file: " + path);
  std::vector<std::vector<std::byte>> frames;
  for (std::size_t at = 24; at + 16 <= all.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, all.data() + at + 8, 4);
    at += 16;
    if (length > all.size() - at) throw std::runtime_error("truncated: " + path);
    const auto* begin = reinterpret_cast<const std::byte*>(all.data() + at);
    frames.emplace_back(begin, begin + length);
    at += length;
  }
  return frames;
}

}  // namespace sluice::golden
