// SPDX-License-Identifier: Apache-2.0
//
// Connection-management datagrams (InfiniBand Architecture Specification volume 1, 12.6; annex A11 for IP
// addressing). Pure functions over bytes; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "dataplane/base/net_address.h"

namespace sluice::cm {

inline constexpr std::size_t kMadBytes = 256;
inline constexpr std::size_t kMadHeaderBytes = 24;

enum class Attribute : std::uint16_t {
  ConnectRequest = 0x10,
  MessageReceiptAcknowledgment = 0x11,
  ConnectReject = 0x12,
  ConnectReply = 0x13,
  ReadyToUse = 0x14,
  DisconnectRequest = 0x15,
  DisconnectReply = 0x16,
  LoadAlternatePath = 0x19,
  AlternatePathResponse = 0x1A,
};

/// Reasons of a ConnectReject (table 108).
enum class RejectReason : std::uint16_t {
  NoQueuePair = 1,
  NoResources = 3,
  Timeout = 4,
  UnsupportedRequest = 5,
  InvalidServiceId = 8,
  InvalidTransportServiceType = 9,
  StaleConnection = 10,
  InvalidPathMtu = 26,
  Consumer = 28,
};

/// Subject of a reject or receipt acknowledgment.
enum class About : std::uint8_t { Request = 0, Reply = 1, Other = 2 };

template <std::size_t Capacity>
struct PrivateData {
  static constexpr std::size_t kCapacity = Capacity;
  std::array<std::byte, Capacity> bytes{};

  void set(std::span<const std::byte> data) noexcept {
    for (std::size_t i = 0; i < data.size() && i < Capacity; ++i) bytes[i] = data[i];
  }
  bool operator==(const PrivateData&) const = default;
};

struct Path {
  std::uint16_t local_lid = 0xFFFF;  ///< permissive, because RoCE has no LIDs
  std::uint16_t remote_lid = 0xFFFF;
  std::array<std::uint8_t, 16> local_gid{};
  std::array<std::uint8_t, 16> remote_gid{};
  std::uint32_t flow_label = 0;  ///< 20 bits
  std::uint8_t packet_rate = 0;  ///< 6 bits
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t service_level = 0;  ///< 4 bits
  bool subnet_local = false;
  std::uint8_t ack_timeout = 0;  ///< 5 bits: 4.096 us * 2^n
  bool operator==(const Path&) const = default;
};

/// Request for a connection. Every message contains the sender's communication identifier, and all except a
/// request contain the receiver's.
struct ConnectRequest {
  std::uint32_t local_id = 0;
  std::uint64_t service_id = 0;
  std::uint64_t ca_guid = 0;
  std::uint32_t queue_key = 0;
  std::uint32_t qpn = 0;
  std::uint8_t responder_resources = 0;
  std::uint32_t local_eecn = 0;
  std::uint8_t initiator_depth = 0;
  std::uint32_t remote_eecn = 0;
  std::uint8_t remote_response_timeout = 0;  ///< 5 bits; time that the sender waits for the answer
  std::uint8_t transport_service = 0;        ///< 0 is reliable connection
  bool end_to_end_flow_control = false;
  std::uint32_t starting_psn = 0;  ///< sequence number of the first packet that the *passive* side sends
  std::uint8_t local_response_timeout = 0;
  std::uint8_t retry_count = 0;
  std::uint16_t partition_key = 0xFFFF;
  std::uint8_t path_mtu = 0;  ///< 1 to 5 for 256 to 4096
  bool rdc_exists = false;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t max_cm_retries = 0;
  bool shared_receive_queue = false;
  std::uint8_t extended_transport = 0;
  Path primary{};
  Path alternate{.local_lid = 0, .remote_lid = 0};
  PrivateData<92> private_data{};
  bool operator==(const ConnectRequest&) const = default;
};

struct ReceiptAcknowledgment {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  About about = About::Request;
  std::uint8_t service_timeout = 0;  ///< 5 bits
  PrivateData<222> private_data{};
  bool operator==(const ReceiptAcknowledgment&) const = default;
};

struct ConnectReject {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  About about = About::Request;
  std::uint8_t info_bytes = 0;
  RejectReason reason = RejectReason::Consumer;
  PrivateData<72> info{};  ///< additional information, depending on the reason
  PrivateData<148> private_data{};
  bool operator==(const ConnectReject&) const = default;

  /// Sets the sender's CA GUID, for the reason Timeout.
  void set_guid(std::uint64_t guid) noexcept {
    info_bytes = sizeof guid;
    for (std::size_t i = 0; i < sizeof guid; ++i)
      info.bytes[i] = static_cast<std::byte>(guid >> (8 * (sizeof guid - 1 - i)));
  }
  /// Returns the acceptable path MTU code for the reason InvalidPathMtu, or zero if the peer does not name
  /// one.
  std::uint8_t path_mtu() const noexcept {
    return info_bytes == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(info.bytes[0] >> 4);
  }
  /// Sets the acceptable path MTU code for the reason InvalidPathMtu. It is in the high half of the byte, as
  /// in a request.
  void set_path_mtu(std::uint8_t code) noexcept {
    info_bytes = 1;
    info.bytes[0] = static_cast<std::byte>(code << 4);
  }
};

struct ConnectReply {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint32_t queue_key = 0;
  std::uint32_t qpn = 0;
  std::uint32_t local_eecn = 0;
  std::uint32_t starting_psn = 0;  ///< sequence number of the first packet that the *active* side sends
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t target_ack_delay = 0;  ///< 5 bits
  std::uint8_t failover = 0;
  bool end_to_end_flow_control = false;
  std::uint8_t rnr_retry_count = 0;
  bool shared_receive_queue = false;
  std::uint64_t ca_guid = 0;
  PrivateData<196> private_data{};
  bool operator==(const ConnectReply&) const = default;
};

struct ReadyToUse {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  PrivateData<224> private_data{};
  bool operator==(const ReadyToUse&) const = default;
};

struct DisconnectRequest {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint32_t remote_qpn = 0;
  PrivateData<220> private_data{};
  bool operator==(const DisconnectRequest&) const = default;
};

struct DisconnectReply {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  PrivateData<224> private_data{};
  bool operator==(const DisconnectReply&) const = default;
};

/// Request for an alternate path, which RoCE does not have.
struct LoadAlternatePath {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint32_t remote_qpn = 0;
  PrivateData<217> path{};  ///< includes the private data
  bool operator==(const LoadAlternatePath&) const = default;
};

/// Status of the answer to a LoadAlternatePath.
enum class PathStatus : std::uint8_t { InvalidConnection = 1, NotSupported = 2 };

struct AlternatePathResponse {
  std::uint32_t local_id = 0;
  std::uint32_t remote_id = 0;
  std::uint8_t info_bytes = 0;
  PathStatus status = PathStatus::NotSupported;
  PrivateData<72> info{};
  PrivateData<148> private_data{};
  bool operator==(const AlternatePathResponse&) const = default;
};

using Body = std::variant<ConnectRequest, ReceiptAcknowledgment, ConnectReject, ConnectReply, ReadyToUse,
                          DisconnectRequest, DisconnectReply, LoadAlternatePath, AlternatePathResponse>;

struct Message {
  std::uint64_t transaction_id = 0;
  Body body;
  bool operator==(const Message&) const = default;
};

enum class Decode : std::uint8_t { Ok, Truncated, NotConnectionManagement, NotSend, UnknownAttribute };

struct DecodeResult {
  Decode status = Decode::Truncated;
  Message message;
};
/// Decodes a message. `bytes` whose length is not kMadBytes are Truncated.
DecodeResult decode(std::span<const std::byte> bytes);
std::array<std::byte, kMadBytes> encode(const Message& message);

/// Beginning of a ConnectRequest's private data for a service of the RDMA IP CM service (A11.4). The
/// consumer's private data follows it.
struct IpAddressing {
  static constexpr std::size_t kBytes = 36;
  std::uint16_t source_port = 0;
  PeerAddress source;
  PeerAddress destination;
};
/// Returns nothing for an unknown version.
std::optional<IpAddressing> decode_ip_addressing(std::span<const std::byte> private_data);
std::array<std::byte, IpAddressing::kBytes> encode_ip_addressing(const IpAddressing& addressing);

/// Returns the service identifier of a TCP port of the RDMA IP CM service (A11.3; V1-181).
constexpr std::uint64_t service_id(std::uint16_t port) noexcept {
  return std::uint64_t{0x0000000001060000} | port;
}
constexpr std::optional<std::uint16_t> port_of(std::uint64_t service) noexcept {
  if ((service & ~std::uint64_t{0xFFFF}) != service_id(0)) return std::nullopt;
  return static_cast<std::uint16_t>(service);
}

/// Returns the size of a path MTU code in bytes, or zero for an invalid code.
constexpr std::uint16_t path_mtu_bytes(std::uint8_t code) noexcept {
  return code >= 1 && code <= 5 ? static_cast<std::uint16_t>(128u << code) : std::uint16_t{0};
}
constexpr std::uint8_t path_mtu_code(std::uint16_t bytes) noexcept {
  std::uint8_t code = 5;
  while (code > 1 && path_mtu_bytes(code) > bytes) --code;
  return code;
}

/// Returns 4.096 us * 2^exponent, in nanoseconds.
constexpr std::uint64_t timeout_ns(std::uint8_t exponent) noexcept {
  return std::uint64_t{4096} << (exponent & 31);
}

}  // namespace sluice::cm
