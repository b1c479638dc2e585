// SPDX-License-Identifier: Apache-2.0
//
// Network headers of one direction of a flow, ready to be copied to each packet. Only the lengths, and with
// them the IPv4 checksum, differ between packets. A value; its owner's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dataplane/base/invariant.h"
#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/frame.h"

namespace sluice::rdma::softroce {

class HeaderTemplate {
 public:
  /// Number of bytes that write() may overwrite: the headers and the bytes after them.
  static constexpr std::size_t kRoom = 80;
  static_assert(kRoom >= kMaxNetworkHeaderBytes);

  HeaderTemplate() = default;
  explicit HeaderTemplate(const Route& route) noexcept
      : network_at_(static_cast<std::uint8_t>(kEthernetBytes + (route.vlan == kNoVlan ? 0 : kVlanBytes))),
        bytes_(static_cast<std::uint8_t>(network_header_bytes(route))),
        v4_(is_ipv4(route.source)) {
    write_network_headers(route, 0, image_.data());
    if (!v4_) return;
    store_be16(image_.data() + network_at_ + kLengthAt4, 0);
    store_be16(image_.data() + network_at_ + kChecksumAt4, 0);
    checksum_ = static_cast<std::uint16_t>(
        ~internet_checksum({image_.data() + network_at_, kIpv4Bytes}));  // sum without the length
  }

  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t network_at() const noexcept { return network_at_; }  ///< offset of the IP header

  /// Writes the headers like write_network_headers(), overwriting up to kRoom bytes.
  void write(std::size_t transport_bytes, std::byte* out) const noexcept {
    SLUICE_INVARIANT_DEBUG(bytes_ <= kRoom && network_at_ < bytes_, buffer_bounds);
    std::memcpy(out, image_.data(), kShort);
    if (bytes_ > kShort) std::memcpy(out + kShort, image_.data() + kShort, kRoom - kShort);
    const auto udp_bytes = static_cast<std::uint16_t>(kUdpBytes + transport_bytes);
    store_be16(out + bytes_ - kUdpBytes + kUdpLengthAt, udp_bytes);
    std::byte* ip = out + network_at_;
    if (!v4_) return store_be16(ip + kLengthAt6, udp_bytes);
    const auto length = static_cast<std::uint16_t>(kIpv4Bytes + udp_bytes);
    const std::uint32_t sum = std::uint32_t{checksum_} + length;
    store_be16(ip + kLengthAt4, length);
    store_be16(ip + kChecksumAt4, static_cast<std::uint16_t>(~(sum + (sum >> 16))));
  }

 private:
  static constexpr std::size_t kShort = 48;  ///< size of the IPv4 headers, rounded up to a size that
                                             ///< processors copy efficiently
  static constexpr std::size_t kLengthAt4 = 2;
  static constexpr std::size_t kChecksumAt4 = 10;
  static constexpr std::size_t kLengthAt6 = 4;
  static constexpr std::size_t kUdpLengthAt = 4;

  std::array<std::byte, kRoom> image_{};
  std::uint8_t network_at_ = 0;
  std::uint8_t bytes_ = 0;
  bool v4_ = false;
  std::uint16_t checksum_ = 0;
};

}  // namespace sluice::rdma::softroce
