// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/pcapng.h"

#include <cstring>

namespace sluice::process::pcapng {
namespace {

enum BlockType : std::uint32_t {
  kSection = 0x0A0D0D0A,
  kInterface = 1,
  kInterfaceStatistics = 5,
  kEnhancedPacket = 6,
};
enum Option : std::uint16_t {
  kEnd = 0,
  kPacketFlags = 2,
  kInterfaceName = 2,
  kPacketsReceived = 4,
  kApplication = 4,
  kPacketsDropped = 5,
  kTimeResolution = 9,
};
constexpr std::uint32_t kByteOrder = 0x1A2B3C4D;
constexpr std::uint16_t kEthernet = 1;
constexpr std::uint8_t kNanoseconds = 9;
constexpr std::uint32_t kInbound = 1;
constexpr std::uint32_t kOutbound = 2;
constexpr std::size_t kFrameBytes = 12;  ///< type, and the length before and after the body

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + 3) / 4 * 4;
}

/// Block from its type to its trailing length. Numbers are in the writer's byte order, as the section header
/// declares.
class Block {
 public:
  Block(Bytes& out, BlockType type) : out_(out), start_(out.size()) {
    number(static_cast<std::uint32_t>(type));
    number(std::uint32_t{0});
  }
  ~Block() {
    const auto bytes = static_cast<std::uint32_t>(out_.size() - start_ + sizeof(std::uint32_t));
    std::memcpy(out_.data() + start_ + sizeof(std::uint32_t), &bytes, sizeof bytes);
    number(bytes);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  template <class T>
  void number(T value) {
    raw(&value, sizeof value);
  }
  void time(std::uint64_t ns) {
    number(static_cast<std::uint32_t>(ns >> 32));
    number(static_cast<std::uint32_t>(ns));
  }
  void data(const void* from, std::size_t bytes) {
    raw(from, bytes);
    out_.resize(out_.size() + padded(bytes) - bytes);
  }
  void option(Option code, const void* value, std::size_t bytes) {
    number(static_cast<std::uint16_t>(code));
    number(static_cast<std::uint16_t>(bytes));
    data(value, bytes);
  }
  void end_of_options() { option(kEnd, nullptr, 0); }

 private:
  void raw(const void* from, std::size_t bytes) {
    const auto* at = static_cast<const std::byte*>(from);
    if (bytes > 0) out_.insert(out_.end(), at, at + bytes);
  }
  Bytes& out_;
  const std::size_t start_;
};

}  // namespace

void add_section(Bytes& out, std::string_view application) {
  Block block(out, kSection);
  block.number(kByteOrder);
  block.number(std::uint16_t{1});  // version 1.0
  block.number(std::uint16_t{0});
  block.number(~std::uint64_t{0});  // section length: unknown
  block.option(kApplication, application.data(), application.size());
  block.end_of_options();
}

void add_interface(Bytes& out, std::string_view name, std::uint32_t snap_bytes) {
  Block block(out, kInterface);
  block.number(kEthernet);
  block.number(std::uint16_t{0});
  block.number(snap_bytes);
  block.option(kInterfaceName, name.data(), name.size());
  block.option(kTimeResolution, &kNanoseconds, sizeof kNanoseconds);
  block.end_of_options();
}

void add_packet(Bytes& out, const Packet& packet) {
  Block block(out, kEnhancedPacket);
  block.number(std::uint32_t{0});  // the interface
  block.time(packet.time_ns);
  block.number(static_cast<std::uint32_t>(packet.kept.size()));
  block.number(packet.wire_bytes);
  block.data(packet.kept.data(), packet.kept.size());
  const std::uint32_t flags = packet.outgoing ? kOutbound : kInbound;
  block.option(kPacketFlags, &flags, sizeof flags);
  block.end_of_options();
}

std::size_t packet_block_bytes(std::size_t kept_bytes) {
  return kFrameBytes + 20 + padded(kept_bytes) + 8 + 4;
}

void add_statistics(Bytes& out, std::uint64_t time_ns, std::uint64_t packets, std::uint64_t dropped) {
  Block block(out, kInterfaceStatistics);
  block.number(std::uint32_t{0});
  block.time(time_ns);
  block.option(kPacketsReceived, &packets, sizeof packets);
  block.option(kPacketsDropped, &dropped, sizeof dropped);
  block.end_of_options();
}

std::size_t statistics_block_bytes() {
  return kFrameBytes + 12 + 12 + 12 + 4;
}

}  // namespace sluice::process::pcapng
