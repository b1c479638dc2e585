// SPDX-License-Identifier: Apache-2.0
//
// Decodes headers of version 1: decoding reads nothing out of bounds, and a header that decodes encodes to
// the same bytes.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "dataplane/rpcrdma/responder/call_layout.h"
#include "dataplane/rpcrdma/wire/v1.h"

using namespace sluice;
using namespace sluice::rpcrdma;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::byte> message(reinterpret_cast<const std::byte*>(data),
                                       reinterpret_cast<const std::byte*>(data) + size);
  const auto decoded = v1::decode(message);
  if (decoded.status != v1::Decode::Ok) return 0;
  const v1::Header& header = decoded.header;
  if (header.procedure != v1::Procedure::Msg && header.procedure != v1::Procedure::NoMsg) return 0;

  std::vector<ReadSegment> reads;
  for (std::uint32_t i = 0; i < header.chunks.reads.size(); ++i) reads.push_back(header.chunks.reads[i]);
  std::vector<std::vector<Segment>> writes;
  for (const WriteChunk chunk : header.chunks.writes) {
    writes.emplace_back();
    for (std::uint32_t i = 0; i < chunk.size(); ++i) writes.back().push_back(chunk[i]);
  }
  std::vector<std::span<const Segment>> spans(writes.begin(), writes.end());
  std::vector<Segment> reply;
  v1::CallChunks chunks{reads, spans, std::nullopt};
  if (header.chunks.reply) {
    for (std::uint32_t i = 0; i < header.chunks.reply->size(); ++i)
      reply.push_back((*header.chunks.reply)[i]);
    chunks.reply = reply;
  }
  std::vector<std::byte> out(header.header_bytes);
  xdr::Writer writer(out);
  v1::encode_call(writer, header.fixed.xid, header.fixed.credits, header.procedure, chunks);
  if (!writer.ok() || std::memcmp(out.data(), message.data(), out.size()) != 0) std::abort();

  const bool long_call = header.procedure == v1::Procedure::NoMsg;
  const CallLayout layout =
      lay_out_call(header.chunks.reads, long_call, long_call ? 0 : size - header.header_bytes, 1 << 20);
  if (layout.defect != LayoutDefect::None) return 0;
  for_each_read(layout, header.chunks.reads, [&](const Segment&, std::uint64_t at, std::uint32_t bytes) {
    if (at + bytes > layout.message_bytes + 3) std::abort();
    return true;
  });
  return 0;
}
