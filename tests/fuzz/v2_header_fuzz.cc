// SPDX-License-Identifier: Apache-2.0
//
// Decodes headers and properties of version 2: decoding reads nothing out of bounds, and what decodes encodes
// to the same bytes.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "dataplane/rpcrdma/wire/v2.h"

using namespace sluice;
using namespace sluice::rpcrdma;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::byte> message(reinterpret_cast<const std::byte*>(data),
                                       reinterpret_cast<const std::byte*>(data) + size);
  static_cast<void>(v2::decode(message, v2::Negotiation::Open));
  const auto decoded = v2::decode(message);
  if (decoded.status != v2::Decode::Ok) return 0;
  const v2::Header& header = decoded.header;
  if (header.type == v2::HeaderType::ConnProp) {
    static_cast<void>(v2::decode_properties(header.properties));
    return 0;
  }
  if (header.type == v2::HeaderType::Error) return 0;

  std::vector<ReadSegment> reads;
  for (std::uint32_t i = 0; i < header.chunks.reads.size(); ++i) reads.push_back(header.chunks.reads[i]);
  std::vector<std::vector<Segment>> writes;
  for (const WriteChunk chunk : header.chunks.writes) {
    writes.emplace_back();
    for (std::uint32_t i = 0; i < chunk.size(); ++i) writes.back().push_back(chunk[i]);
  }
  std::vector<std::span<const Segment>> spans(writes.begin(), writes.end());
  std::vector<Segment> reply;
  CallChunks chunks{reads, spans, std::nullopt};
  if (header.chunks.reply) {
    for (std::uint32_t i = 0; i < header.chunks.reply->size(); ++i)
      reply.push_back((*header.chunks.reply)[i]);
    chunks.reply = reply;
  }
  std::vector<std::byte> out(header.header_bytes);
  xdr::Writer writer(out);
  v2::encode_call(writer, {.xid = header.fixed.xid, .credit = header.credit, .flags = header.flags},
                  header.type, header.invalidate, chunks);
  if (!writer.ok() || std::memcmp(out.data(), message.data(), out.size()) != 0) std::abort();
  return 0;
}
