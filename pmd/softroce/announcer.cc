// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/announcer.h"

#include <cstring>

#include "pmd/softroce/host_frames.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::size_t kHopByHopBytes = 8;
constexpr std::size_t kReportBytes = 8;
constexpr std::size_t kRecordBytes = 20;
constexpr std::byte kReport{143};
constexpr PeerAddress kReportGroup{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16}};

constexpr bool is_link_local(const PeerAddress& address) noexcept {
  return address.bytes[0] == 0xFE && (address.bytes[1] & 0xC0) == 0x80;
}

}  // namespace

std::size_t write_group_report(const PortConfig& config, const MacAddress& own, GroupRecord kind,
                               std::byte* out) noexcept {
  // From a link-local address; without one from none, which switches take (RFC 3590, section 4).
  PeerAddress from = kNoAddress;
  std::uint16_t groups = 0;
  for (const InterfaceAddress& each : config.addresses) {
    if (is_ipv4(each.address)) continue;
    ++groups;
    if (is_link_local(each.address)) from = each.address;
  }
  if (groups == 0) return 0;
  const std::size_t message = kReportBytes + groups * kRecordBytes;
  std::byte* ip = out + write_ethernet(config, own, group_mac(kReportGroup), kTypeIpv6, out);
  std::byte* at = ip + write_ipv6(from, kReportGroup, kHopByHopBytes + message, ip);
  ip[6] = std::byte{kProtocolHopByHop};
  ip[7] = std::byte{1};
  // Router alert, and padding (RFC 2711).
  constexpr std::array<std::byte, kHopByHopBytes> kOptions{std::byte{kProtocolIcmp6},
                                                           std::byte{0},
                                                           std::byte{5},
                                                           std::byte{2},
                                                           std::byte{0},
                                                           std::byte{0},
                                                           std::byte{1},
                                                           std::byte{0}};
  std::memcpy(at, kOptions.data(), kOptions.size());
  at += kHopByHopBytes;
  std::memset(at, 0, message);
  at[0] = kReport;
  store_be16(at + 6, groups);
  std::byte* record = at + kReportBytes;
  for (const InterfaceAddress& each : config.addresses) {
    if (is_ipv4(each.address)) continue;
    record[0] = static_cast<std::byte>(kind);
    const PeerAddress group = solicited_group(each.address);
    std::memcpy(record + 4, group.bytes.data(), 16);
    record += kRecordBytes;
  }
  store_be16(at + 2, icmp6_checksum(from, kReportGroup, {at, message}));
  return static_cast<std::size_t>(record - out);
}

std::size_t Announcer::write(std::size_t step, std::byte* out) const noexcept {
  const std::size_t number = step / 2;
  if (number == config_.addresses.size()) return write_group_report(config_, own_, GroupRecord::Joined, out);
  const bool asks = step % 2 == 0;
  if (asks && round_ > 0) return 0;
  const PeerAddress& address = config_.addresses[number].address;
  if (is_ipv4(address)) {
    const std::size_t at = write_ethernet(config_, own_, kBroadcast, kTypeArp, out);
    return at + write_arp_request(own_, asks ? kNoAddress : address, address, out + at);
  }
  const PeerAddress to = asks ? solicited_group(address) : kAllNodes;
  const std::size_t at = write_ethernet(config_, own_, group_mac(to), kTypeIpv6, out);
  if (asks)
    return at + write_neighbour_message(kNeighbourSolicitation, 0, kNoAddress, to, address, std::byte{0},
                                        own_, out + at);
  return at + write_neighbour_message(kNeighbourAdvertisement, kOverride, address, to, address,
                                      kTargetLinkOption, own_, out + at);
}

std::size_t Announcer::next(std::uint64_t now_ns, std::byte* out) noexcept {
  const std::size_t length = write(step_, out);
  if (step_++ < 2 * config_.addresses.size()) return length;
  step_ = 0;
  next_ns_ = ++round_ < kAnnouncements ? now_ns + kAnnounceIntervalNs : kNever;
  return length;
}

void Announcer::again(std::uint64_t now_ns) noexcept {
  if (!config_.announce) return;
  round_ = 0;
  step_ = 0;
  next_ns_ = now_ns;
}

void Announcer::defend(std::uint64_t now_ns) noexcept {
  if (next_ns_ != kNever || !config_.announce) return;  // says so anyway
  if (defended_ns_ != 0 && now_ns - defended_ns_ < kDefendIntervalNs) return;
  defended_ns_ = next_ns_ = now_ns;
  round_ = kAnnouncements - 1;
}

}  // namespace sluice::rdma::softroce
