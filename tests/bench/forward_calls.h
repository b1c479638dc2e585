// SPDX-License-Identifier: Apache-2.0
//
// NFSv3 calls for comparisons of the gateway, and the replies of its upstreams. All calls of a procedure are
// equal except for the XID, and so are their replies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cli/bench/client.h"
#include "dataplane/rpc/message.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::bench {

// Processors. A client over RDMA and the gateway's reactor are one thread.
inline constexpr int kUpstreamCpu = 1;
inline constexpr int kGatewayCpu = 0;

inline constexpr std::uint32_t kMegabyte = 1u << 20;
inline constexpr std::uint32_t kLastFragment = 1u << 31;
inline constexpr std::size_t kProcedureAt = 20;  // offset in a call message
inline constexpr std::size_t kReplyHeaderBytes = 24;
inline constexpr std::size_t kStatusAt = 20;  // offset of the accept_stat in a reply

/// Procedure of a call, and the number of bytes that a READ or WRITE moves.
struct ForwardedShape {
  std::uint32_t procedure = ulb::kNfs3Null;
  std::uint32_t data_bytes = 0;

  bool reads() const { return procedure == ulb::kNfs3Read; }
  bool writes() const { return procedure == ulb::kNfs3Write; }
};

/// Returns a call message without the data of a WRITE, which follows.
inline std::vector<std::byte> call_message(const ForwardedShape& shape) {
  constexpr std::uint32_t kUnstable = 0;
  CallBuilder builder(ulb::kNfsProgram, ulb::kNfs3Version, shape.procedure);
  const std::array<std::byte, 32> handle{};
  if (shape.procedure != ulb::kNfs3Null) builder.arguments().opaque(handle);
  if (shape.reads()) builder.arguments().words(0, 0, shape.data_bytes);
  if (shape.writes()) builder.arguments().words(0, 0, shape.data_bytes, kUnstable, shape.data_bytes);
  return {builder.message().begin(), builder.message().end()};
}

/// Returns a reply message without the data of a READ, which follows.
inline std::vector<std::byte> reply_message(const ForwardedShape& shape) {
  constexpr std::uint32_t kAttributesBytes = 84;
  std::vector<std::byte> message(256);
  xdr::Writer writer(message);
  rpc::encode_accepted(writer, {}, {}, rpc::AcceptStat::Success);
  if (shape.procedure == ulb::kNfs3GetAttr) {
    writer.u32(0);
    writer.opaque_fixed(std::array<std::byte, kAttributesBytes>{});
  }
  // Status, no attributes, count, end of file, length.
  if (shape.reads()) writer.words(0, 0, shape.data_bytes, 1, shape.data_bytes);
  // Status, no attributes before and after, count, UNSTABLE, verifier.
  if (shape.writes()) writer.words(0, 0, 0, shape.data_bytes, 0, 0, 0);
  message.resize(writer.position());
  return message;
}

/// Stores the mark of a record of one fragment.
inline void store_mark(std::byte* to, std::size_t message_bytes) {
  xdr::store_u32(to, kLastFragment | static_cast<std::uint32_t>(message_bytes));
}
inline std::size_t load_mark(const std::byte* from) {
  return xdr::load_u32(from) & ~kLastFragment;
}

}  // namespace sluice::bench
