// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/neighbours.h"

#include <cstring>

#include "dataplane/base/invariant.h"
#include "pmd/softroce/announcer.h"
#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/host_frames.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::byte kEchoRequest{8};
constexpr std::byte kEchoReply{0};
constexpr std::byte kEcho6Request{128};
constexpr std::byte kEcho6Reply{129};
constexpr std::byte kGroupQuery{130};
constexpr std::byte kOneHop{1};

PeerAddress ipv4_at(const std::byte* at) noexcept {
  PeerAddress address = PeerAddress::from_ipv4(0, 0, 0, 0);
  std::memcpy(address.bytes.data() + 12, at, 4);
  return address;
}
PeerAddress ipv6_at(const std::byte* at) noexcept {
  PeerAddress address;
  std::memcpy(address.bytes.data(), at, 16);
  return address;
}

/// Reports whether the address belongs to one host, not to a multicast or broadcast group.
bool is_unicast(const MacAddress& link) noexcept {
  return (link[0] & 1) == 0;
}

}  // namespace

const PeerAddress* Neighbours::own_of_family(bool v4) const noexcept {
  for (const InterfaceAddress& own : config_.addresses)
    if (is_ipv4(own.address) == v4) return &own.address;
  return nullptr;
}

const PeerAddress& Neighbours::next_hop(const PeerAddress& remote) const noexcept {
  for (const InterfaceAddress& own : config_.addresses)
    if (remote.within(own.address, own.prefix_bits)) return remote;
  for (const PeerAddress& gateway : config_.gateways)
    if (is_ipv4(gateway) == is_ipv4(remote)) return gateway;
  return remote;
}

std::size_t Neighbours::ask(const PeerAddress& remote, std::byte* out) const noexcept {
  const PeerAddress& hop = next_hop(remote);
  const bool v4 = is_ipv4(hop);
  const PeerAddress* own = own_of_family(v4);
  if (own == nullptr) return 0;
  if (v4) {
    const std::size_t at = ethernet_header(kBroadcast, kTypeArp, out);
    return at + write_arp_request(own_, *own, hop, out + at);
  }
  const PeerAddress group = solicited_group(hop);
  const std::size_t at = ethernet_header(group_mac(group), kTypeIpv6, out);
  return at + write_neighbour_message(kNeighbourSolicitation, 0, *own, group, hop, kSourceLinkOption, own_,
                                      out + at);
}

std::size_t Neighbours::on_frame(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                                 Statistics& statistics) noexcept {
  if (frame.vlan != vlan_of(config_.vlan) || bytes.size() > kMaxAnswerBytes) return 0;
  switch (frame.kind) {
    case FrameKind::Arp:
      return on_arp(frame, bytes, out, statistics);
    case FrameKind::Ipv4:
      return frame.protocol == kProtocolIcmp ? on_icmp(frame, bytes, out, statistics)
                                             : on_no_service(frame, bytes, out, statistics);
    case FrameKind::Ipv6:
      if (frame.protocol == kProtocolHopByHop && bytes[frame.network_offset + std::size_t{7}] == kOneHop)
        return on_group_query(frame, out);
      return frame.protocol == kProtocolIcmp6 ? on_icmp6(frame, bytes, out, statistics)
                                              : on_no_service(frame, bytes, out, statistics);
    default:
      return 0;
  }
}

std::size_t Neighbours::on_arp(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                               Statistics& statistics) noexcept {
  const auto arp = bytes.subspan(frame.network_offset);
  if (arp.size() < kArpBytes || load_be16(arp.data()) != 1 || load_be16(arp.data() + 2) != kTypeIpv4 ||
      arp[4] != std::byte{6} || arp[5] != std::byte{4})
    return 0;
  const std::uint16_t operation = load_be16(arp.data() + 6);
  const MacAddress sender = mac_at(arp.data() + 8);
  const PeerAddress sender_address = ipv4_at(arp.data() + 14);
  const PeerAddress target = ipv4_at(arp.data() + 24);
  if (!is_unicast(sender)) return 0;
  const bool nobodys = sender_address == PeerAddress::from_ipv4(0, 0, 0, 0);
  if (nobodys && sender == own_) return 0;  // our own probe, received back
  if (is_own(sender_address)) {
    statistics.address_conflicts += sender != own_;
    return 0;
  }
  cache_.follow(sender_address, sender, now_ns_);  // regardless of the target (RFC 826; RFC 5227, section 3)
  if (!is_own(target)) return 0;
  if (!nobodys) learn(sender_address, sender);  // otherwise the request is a probe for duplicates
  if (operation != kArpRequest) return 0;
  std::byte* at = out + ethernet_header(sender, kTypeArp, out);
  std::memcpy(at, arp.data(), 6);
  store_be16(at + 6, kArpReply);
  std::memcpy(at + 8, own_.data(), 6);
  std::memcpy(at + 14, arp.data() + 24, 4);
  std::memcpy(at + 18, arp.data() + 8, 10);
  ++statistics.arp_replies;
  return static_cast<std::size_t>(at + kArpBytes - out);
}

/// Refuses a packet for a TCP or UDP service, because the port has none.
std::size_t Neighbours::on_no_service(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                                      Statistics& statistics) noexcept {
  const MacAddress sender = mac_at(bytes.data() + 6);
  if (!same(own_, bytes.data()) || !is_unicast(sender) || !is_own(frame.destination) ||
      is_own(frame.source) || !refusals_.has_answer(frame, now_ns_, statistics))
    return 0;
  const std::size_t headers = std::size_t{frame.transport_offset} - frame.network_offset;
  const std::size_t at = ethernet_header(sender, frame.kind == FrameKind::Ipv6 ? kTypeIpv6 : kTypeIpv4, out);
  return at + PortRefusals::write(
                  frame, bytes.subspan(frame.network_offset, headers + frame.transport.size()), out + at);
}

/// Replies to an echo request with the addresses swapped.
std::size_t Neighbours::on_icmp(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                                Statistics& statistics) const noexcept {
  const auto message = frame.transport;
  if (message.size() < kIcmpBytes || message[0] != kEchoRequest || !is_own(frame.destination)) return 0;
  std::byte* ip = out + ethernet_header(mac_at(bytes.data() + 6), kTypeIpv4, out);
  std::memcpy(ip, bytes.data() + frame.network_offset, kIpv4Bytes + message.size());
  std::memcpy(ip + 12, bytes.data() + frame.network_offset + 16, 4);
  std::memcpy(ip + 16, bytes.data() + frame.network_offset + 12, 4);
  std::byte* icmp = ip + kIpv4Bytes;
  icmp[0] = kEchoReply;
  store_be16(icmp + 2, 0);
  store_be16(icmp + 2, internet_checksum({icmp, message.size()}));
  ++statistics.echo_replies;
  return static_cast<std::size_t>(icmp + message.size() - out);
}

std::size_t Neighbours::on_icmp6(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                                 Statistics& statistics) noexcept {
  const auto message = frame.transport;
  if (message.size() < kIcmpBytes || icmp6_checksum(frame.source, frame.destination, message) != 0) return 0;
  const MacAddress sender = mac_at(bytes.data() + 6);
  const bool on_link = bytes[frame.network_offset + std::size_t{7}] == kOnLinkHops;

  if (message[0] == kEcho6Request && is_own(frame.destination)) {
    std::byte* ip = out + ethernet_header(sender, kTypeIpv6, out);
    std::byte* at = ip + write_ipv6(frame.destination, frame.source, message.size(), ip);
    std::memcpy(at, message.data(), message.size());
    at[0] = kEcho6Reply;
    store_be16(at + 2, 0);
    store_be16(at + 2, icmp6_checksum(frame.destination, frame.source, {at, message.size()}));
    ++statistics.echo_replies;
    return static_cast<std::size_t>(at + message.size() - out);
  }
  if (!on_link || message.size() < kNeighbourBytes) return 0;
  // Our own announcement or solicitation, received back, is ignored.
  if (sender == own_ && (frame.source == kNoAddress || is_own(frame.source))) return 0;
  if (message[0] == kNeighbourAdvertisement) on_advertisement(frame, statistics);
  return message[0] == kNeighbourSolicitation ? on_solicitation(frame, sender, out, statistics) : 0;
}

/// Handles an advertisement, which is a reply to us or an announcement to all nodes. An announcement creates
/// no entry, and replaces a known address only with the override flag (RFC 4861, section 7.2.5).
void Neighbours::on_advertisement(const Frame& frame, Statistics& statistics) noexcept {
  const auto message = frame.transport;
  const PeerAddress target = ipv6_at(message.data() + 8);
  if (is_own(target)) {
    ++statistics.address_conflicts;
    return;
  }
  const auto option = message.subspan(kNeighbourBytes);
  if (option.size() < kLinkOptionBytes || option[0] != kTargetLinkOption || option[1] != std::byte{1}) return;
  const MacAddress link = mac_at(option.data() + 2);
  if (!is_unicast(link)) return;
  if (is_own(frame.destination))
    learn(target, link);
  else if (frame.destination == kAllNodes && (load_be32(message.data() + 4) & kOverride) != 0)
    cache_.follow(target, link, now_ns_);
}

std::size_t Neighbours::on_solicitation(const Frame& frame, const MacAddress& sender, std::byte* out,
                                        Statistics& statistics) noexcept {
  const PeerAddress target = ipv6_at(frame.transport.data() + 8);
  if (!is_own(target) || !is_unicast(sender)) return 0;
  // A solicitation without a source address probes whether the target is in use, and the reply can only go to
  // a multicast group (RFC 4861, section 7.2.4).
  const bool duplicate = frame.source == kNoAddress;
  if (!duplicate) learn(frame.source, sender);
  const PeerAddress to = duplicate ? kAllNodes : frame.source;
  const std::size_t at = ethernet_header(duplicate ? group_mac(to) : sender, kTypeIpv6, out);
  ++statistics.arp_replies;
  const std::uint32_t flags = duplicate ? kOverride : kSolicitedAnswer | kOverride;
  return at + write_neighbour_message(kNeighbourAdvertisement, flags, target, to, target, kTargetLinkOption,
                                      own_, out + at);
}

/// Reports all groups immediately, because there are few (RFC 3810, section 6).
std::size_t Neighbours::on_group_query(const Frame& frame, std::byte* out) const noexcept {
  const auto options = frame.transport;
  if (options.size() < 8 || options[0] != std::byte{kProtocolIcmp6}) return 0;
  const std::size_t option_bytes = 8 + 8 * std::to_integer<std::size_t>(options[1]);
  if (options.size() < option_bytes + kNeighbourBytes) return 0;
  const auto message = options.subspan(option_bytes);
  if (message[0] != kGroupQuery || icmp6_checksum(frame.source, frame.destination, message) != 0) return 0;
  return write_group_report(config_, own_, GroupRecord::Is, out);
}

namespace {

constexpr std::size_t kHopByHopBytes = 8;
constexpr std::size_t kReportBytes = 8;
constexpr std::size_t kRecordBytes = 20;
constexpr std::byte kReport{143};
constexpr PeerAddress kReportGroup{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16}};

}  // namespace

std::size_t write_group_report(const PortConfig& config, const MacAddress& own, GroupRecord kind,
                               std::byte* out) noexcept {
  // The source is a link-local address. Without one it is the unspecified address, which switches accept (RFC
  // 3590, section 4).
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
  // Router alert option and padding (RFC 2711).
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
  static_cast<void>(SLUICE_INVARIANT(record == at + message, buffer_bounds));
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
  static_cast<void>(SLUICE_INVARIANT(step_ <= 2 * config_.addresses.size(), table_index));
  static_cast<void>(SLUICE_INVARIANT(due(now_ns), timer_state));
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
  if (next_ns_ != kNever || !config_.announce) return;  // an announcement is pending already
  if (defended_ns_ != 0 && now_ns - defended_ns_ < kDefendIntervalNs) return;
  defended_ns_ = next_ns_ = now_ns;
  round_ = kAnnouncements - 1;
}

}  // namespace sluice::rdma::softroce
