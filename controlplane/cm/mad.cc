// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/mad.h"

#include <cstring>

namespace sluice::cm {
namespace {

constexpr std::uint8_t kBaseVersion = 1;
constexpr std::uint8_t kClass = 0x07;
constexpr std::uint8_t kClassVersion = 2;
constexpr std::uint8_t kMethodSend = 0x03;

/// Reads fields in order and skips the gaps. One description of each message serves both directions, because
/// `Field` is a reader or a writer.
class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  template <typename T>
  void number(T& value, std::size_t bytes) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < bytes; ++i) sum = sum << 8 | std::to_integer<std::uint64_t>(*at_++);
    value = static_cast<T>(sum);
  }
  template <typename Bytes>
  void bytes(Bytes& value) {
    std::memcpy(value.data(), at_, value.size());
    at_ += value.size();
  }
  /// Reads a byte or word that consists of bit fields, highest bits first.
  template <typename... Parts>
  void bits(std::size_t bytes, Parts... parts) {
    std::uint64_t word = 0;
    number(word, bytes);
    std::size_t left = bytes * 8;
    const auto take = [&](auto part) {
      left -= part.width;
      part.set(word >> left & ((std::uint64_t{1} << part.width) - 1));
    };
    (take(parts), ...);
  }
  void skip(std::size_t bytes) { at_ += bytes; }

 private:
  const std::byte* at_;
};

class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  template <typename T>
  void number(const T& value, std::size_t bytes) {
    const auto all = static_cast<std::uint64_t>(value);
    for (std::size_t i = bytes; i-- > 0;) *at_++ = static_cast<std::byte>(all >> (8 * i));
  }
  template <typename Bytes>
  void bytes(const Bytes& value) {
    std::memcpy(at_, value.data(), value.size());
    at_ += value.size();
  }
  template <typename... Parts>
  void bits(std::size_t bytes, Parts... parts) {
    std::uint64_t word = 0;
    std::size_t left = bytes * 8;
    const auto put = [&](auto part) {
      left -= part.width;
      word |= (part.get() & ((std::uint64_t{1} << part.width) - 1)) << left;
    };
    (put(parts), ...);
    number(word, bytes);
  }
  void skip(std::size_t bytes) { at_ += bytes; }  // stays zero

 private:
  std::byte* at_;
};

template <typename T>
struct Part {
  T* value;
  std::size_t width;
  void set(std::uint64_t bits) const {
    if constexpr (!std::is_const_v<T>) *value = static_cast<T>(bits);
  }
  std::uint64_t get() const { return static_cast<std::uint64_t>(*value); }
};
template <typename T>
Part<T> part(T& value, std::size_t width) {
  return {&value, width};
}
struct Reserved {
  std::size_t width;
  void set(std::uint64_t) const {}
  std::uint64_t get() const { return 0; }
};

template <typename Field, typename P>
void fields_of_path(Field& f, P& path) {
  f.number(path.local_lid, 2);
  f.number(path.remote_lid, 2);
  f.bytes(path.local_gid);
  f.bytes(path.remote_gid);
  f.bits(4, part(path.flow_label, 20), Reserved{6}, part(path.packet_rate, 6));
  f.number(path.traffic_class, 1);
  f.number(path.hop_limit, 1);
  f.bits(1, part(path.service_level, 4), part(path.subnet_local, 1), Reserved{3});
  f.bits(1, part(path.ack_timeout, 5), Reserved{3});
}

template <typename T, typename Message>
concept Is = std::is_same_v<std::remove_const_t<T>, Message>;

template <typename Field, Is<ConnectRequest> M>
void fields(Field& f, M& m) {
  f.number(m.local_id, 4);
  f.skip(4);
  f.number(m.service_id, 8);
  f.number(m.ca_guid, 8);
  f.skip(4);
  f.number(m.queue_key, 4);
  f.number(m.qpn, 3);
  f.number(m.responder_resources, 1);
  f.number(m.local_eecn, 3);
  f.number(m.initiator_depth, 1);
  f.number(m.remote_eecn, 3);
  f.bits(1, part(m.remote_response_timeout, 5), part(m.transport_service, 2),
         part(m.end_to_end_flow_control, 1));
  f.number(m.starting_psn, 3);
  f.bits(1, part(m.local_response_timeout, 5), part(m.retry_count, 3));
  f.number(m.partition_key, 2);
  f.bits(1, part(m.path_mtu, 4), part(m.rdc_exists, 1), part(m.rnr_retry_count, 3));
  f.bits(1, part(m.max_cm_retries, 4), part(m.shared_receive_queue, 1), part(m.extended_transport, 3));
  fields_of_path(f, m.primary);
  fields_of_path(f, m.alternate);
  f.bytes(m.private_data.bytes);
}

template <typename Field, Is<ReceiptAcknowledgment> M>
void fields(Field& f, M& m) {
  f.number(m.local_id, 4);
  f.number(m.remote_id, 4);
  f.bits(1, part(m.about, 2), Reserved{6});
  f.bits(1, part(m.service_timeout, 5), Reserved{3});
  f.bytes(m.private_data.bytes);
}

template <typename Field, Is<ConnectReject> M>
void fields(Field& f, M& m) {
  f.number(m.local_id, 4);
  f.number(m.remote_id, 4);
  f.bits(1, part(m.about, 2), Reserved{6});
  f.bits(1, part(m.info_bytes, 7), Reserved{1});
  f.number(m.reason, 2);
  f.bytes(m.info.bytes);
  f.bytes(m.private_data.bytes);
}

template <typename Field, Is<ConnectReply> M>
void fields(Field& f, M& m) {
  f.number(m.local_id, 4);
  f.number(m.remote_id, 4);
  f.number(m.queue_key, 4);
  f.number(m.qpn, 3);
  f.skip(1);
  f.number(m.local_eecn, 3);
  f.skip(1);
  f.number(m.starting_psn, 3);
  f.skip(1);
  f.number(m.responder_resources, 1);
  f.number(m.initiator_depth, 1);
  f.bits(1, part(m.target_ack_delay, 5), part(m.failover, 2), part(m.end_to_end_flow_control, 1));
  f.bits(1, part(m.rnr_retry_count, 3), part(m.shared_receive_queue, 1), Reserved{4});
  f.number(m.ca_guid, 8);
  f.bytes(m.private_data.bytes);
}

template <typename Field, typename M>
requires(Is<M, ReadyToUse> || Is<M, DisconnectReply>) void fields(Field& f, M& m) {
  f.number(m.local_id, 4);
  f.number(m.remote_id, 4);
  f.bytes(m.private_data.bytes);
}

template <typename Field, Is<DisconnectRequest> M>
void fields(Field& f, M& m) {
  f.number(m.local_id, 4);
  f.number(m.remote_id, 4);
  f.number(m.remote_qpn, 3);
  f.skip(1);
  f.bytes(m.private_data.bytes);
}

template <typename Field, Is<LoadAlternatePath> M>
void fields(Field& f, M& m) {
  f.number(m.local_id, 4);
  f.number(m.remote_id, 4);
  f.skip(4);
  f.number(m.remote_qpn, 3);
  f.bytes(m.path.bytes);
}

template <typename Field, Is<AlternatePathResponse> M>
void fields(Field& f, M& m) {
  f.number(m.local_id, 4);
  f.number(m.remote_id, 4);
  f.number(m.info_bytes, 1);
  f.number(m.status, 1);
  f.skip(2);
  f.bytes(m.info.bytes);
  f.bytes(m.private_data.bytes);
}

constexpr Attribute attribute_of(const Body& body) {
  constexpr Attribute kByIndex[] = {Attribute::ConnectRequest,       Attribute::MessageReceiptAcknowledgment,
                                    Attribute::ConnectReject,        Attribute::ConnectReply,
                                    Attribute::ReadyToUse,           Attribute::DisconnectRequest,
                                    Attribute::DisconnectReply,      Attribute::LoadAlternatePath,
                                    Attribute::AlternatePathResponse};
  static_assert(std::size(kByIndex) == std::variant_size_v<Body>);
  return kByIndex[body.index()];
}

std::optional<Body> empty_body(Attribute attribute) {
  switch (attribute) {
    case Attribute::ConnectRequest:
      return ConnectRequest{};
    case Attribute::MessageReceiptAcknowledgment:
      return ReceiptAcknowledgment{};
    case Attribute::ConnectReject:
      return ConnectReject{};
    case Attribute::ConnectReply:
      return ConnectReply{};
    case Attribute::ReadyToUse:
      return ReadyToUse{};
    case Attribute::DisconnectRequest:
      return DisconnectRequest{};
    case Attribute::DisconnectReply:
      return DisconnectReply{};
    case Attribute::LoadAlternatePath:
      return LoadAlternatePath{};
    case Attribute::AlternatePathResponse:
      return AlternatePathResponse{};
  }
  return std::nullopt;
}

}  // namespace

DecodeResult decode(std::span<const std::byte> bytes) {
  DecodeResult result;
  if (bytes.size() != kMadBytes) return result;
  Reader header(bytes.data());
  std::uint8_t base = 0;
  std::uint8_t management_class = 0;
  std::uint8_t class_version = 0;
  std::uint8_t method = 0;
  auto attribute = Attribute{};
  header.number(base, 1);
  header.number(management_class, 1);
  header.number(class_version, 1);
  header.number(method, 1);
  header.skip(4);
  header.number(result.message.transaction_id, 8);
  header.number(attribute, 2);
  if (base != kBaseVersion || management_class != kClass || class_version != kClassVersion) {
    result.status = Decode::NotConnectionManagement;
  } else if (method != kMethodSend) {
    result.status = Decode::NotSend;
  } else if (auto body = empty_body(attribute); !body) {
    result.status = Decode::UnknownAttribute;
  } else {
    result.status = Decode::Ok;
    result.message.body = *body;
    Reader data(bytes.data() + kMadHeaderBytes);
    std::visit([&](auto& message) { fields(data, message); }, result.message.body);
  }
  return result;
}

std::array<std::byte, kMadBytes> encode(const Message& message) {
  std::array<std::byte, kMadBytes> bytes{};
  Writer writer(bytes.data());
  writer.number(kBaseVersion, 1);
  writer.number(kClass, 1);
  writer.number(kClassVersion, 1);
  writer.number(kMethodSend, 1);
  writer.skip(4);  // status and class-specific
  writer.number(message.transaction_id, 8);
  writer.number(attribute_of(message.body), 2);
  writer.skip(6);  // reserved, attribute modifier
  std::visit([&](const auto& body) { fields(writer, body); }, message.body);
  return bytes;
}

std::optional<IpAddressing> decode_ip_addressing(std::span<const std::byte> private_data) {
  if (private_data.size() < IpAddressing::kBytes || private_data[0] != std::byte{0}) return std::nullopt;
  const unsigned version = std::to_integer<unsigned>(private_data[1]) >> 4;
  if (version != 4 && version != 6) return std::nullopt;
  IpAddressing result;
  Reader reader(private_data.data() + 2);
  reader.number(result.source_port, 2);
  reader.bytes(result.source.bytes);
  reader.bytes(result.destination.bytes);
  if (version == 4) {
    for (PeerAddress* address : {&result.source, &result.destination}) {
      const auto& b = address->bytes;
      *address = PeerAddress::from_ipv4(b[12], b[13], b[14], b[15]);
    }
  }
  return result;
}

std::array<std::byte, IpAddressing::kBytes> encode_ip_addressing(const IpAddressing& addressing) {
  std::array<std::byte, IpAddressing::kBytes> bytes{};
  const bool v4 = addressing.source.within(PeerAddress::from_ipv4(0, 0, 0, 0), 96);
  bytes[1] = std::byte{static_cast<unsigned char>(v4 ? 0x40 : 0x60)};
  Writer writer(bytes.data() + 2);
  writer.number(addressing.source_port, 2);
  for (PeerAddress address : {addressing.source, addressing.destination}) {
    for (std::size_t i = 0; v4 && i < 12; ++i) address.bytes[i] = 0;
    writer.bytes(address.bytes);
  }
  return bytes;
}

}  // namespace sluice::cm
