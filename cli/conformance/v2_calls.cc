// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/v2_calls.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kMostProperties = 64;

}  // namespace

Bytes joined(Trial& t, Bytes message) {
  Bytes payload;
  for (int parts = 0; parts < 64; ++parts) {
    append(payload, read_v2(message).payload);
    if ((word_at(message, 4) & v2::kMore) == 0) return payload;
    message = t.answer();
  }
  throw Failure("A reply does not end.");
}

Bytes content_of(Trial& t, std::uint32_t bytes) {
  const Exposed memory = t.writable(bytes);
  const std::uint32_t xid = t.next_xid();
  const RawReply reply = read_v2(t.ask(
      v2::Header{.xid = xid, .writes = {{memory.segment}}}.with(read_payload(xid, t.target.file, 0, bytes))));
  if (read_result(reply.payload).count != bytes) throw Failure("A READ returned less than was written.");
  return {memory.bytes.begin(), memory.bytes.end()};
}

Bytes properties(std::uint32_t xid, std::initializer_list<Property> list, std::uint16_t credits) {
  Bytes out = v2::Header{.xid = xid, .credit = kNoCredits | credits, .type = v2::kConnProp}.then(
      {static_cast<std::uint32_t>(list.size())});
  for (const Property& property : list) append(out, words({property.id, 4, property.value}));
  return out;
}

std::optional<std::uint32_t> announced(const Trial& t, std::uint32_t id) {
  for (const Bytes& message : t.heard()) {
    if (word_at(message, 3) != v2::kConnProp || message.size() < 20) continue;
    xdr::Reader reader(std::span<const std::byte>(message).subspan(20));
    const std::uint32_t count = reader.u32();
    for (std::uint32_t i = 0; i < count && i < kMostProperties && reader.ok(); ++i) {
      const std::uint32_t found = reader.u32();
      const auto data = reader.opaque(static_cast<std::uint32_t>(message.size()));
      if (reader.ok() && found == id && data.size() == 4) return xdr::load_u32(data.data());
    }
  }
  return std::nullopt;
}

Bytes read_v2_call(Trial& t, std::uint32_t xid, std::uint32_t count, std::uint32_t credit) {
  return v2::Header{.xid = xid, .credit = credit}.with(read_payload(xid, t.target.file, 0, count));
}

}  // namespace sluice::conformance
