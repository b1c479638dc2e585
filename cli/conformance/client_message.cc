// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/client_message.h"

#include <algorithm>

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kRpcSecGss = 6;

class Parser {
 public:
  explicit Parser(ClientMessage& message) : out_(message), reader_(message.bytes) {}

  void fixed_words() {
    RawCall& header = out_.header;
    header.xid = reader_.u32();
    header.version = reader_.u32();
    header.credits = reader_.u32();
    header.proc = reader_.u32();
    end_here("it is shorter than the four fixed words");
  }
  void flags() {
    out_.flags = reader_.u32();
    end_here("it is shorter than its prefix");
  }
  void invalidate() { out_.invalidate = reader_.u32(); }
  void chunk_fields() {
    while (another()) out_.header.reads.push_back({reader_.u32(), segment()});
    end_here("it ends within its Read list");
    while (another()) out_.header.writes.push_back(counted_segments());
    end_here("it ends within its Write list");
    if (another()) out_.header.reply = counted_segments();
    end_here("it ends within its Reply chunk");
  }

 private:
  bool another() {
    const std::uint32_t word = reader_.u32();
    if (reader_.ok() && word > 1) {
      out_.odd_discriminator = true;
      reader_.fail();
      out_.defect = "a word in front of an entry is " + std::to_string(word);
    }
    return reader_.ok() && word == 1;
  }
  rpcrdma::Segment segment() {
    const auto handle = static_cast<rdma::Rkey>(reader_.u32());
    const std::uint32_t length = reader_.u32();
    return {handle, length, reader_.u64()};
  }
  std::vector<rpcrdma::Segment> counted_segments() {
    std::vector<rpcrdma::Segment> segments;
    for (std::uint32_t left = reader_.u32(); left > 0 && reader_.ok(); --left) segments.push_back(segment());
    return segments;
  }
  void end_here(const char* defect) {
    if (reader_.ok())
      out_.header_bytes = reader_.position();
    else if (out_.defect.empty())
      out_.defect = defect;
  }

  ClientMessage& out_;
  xdr::Reader reader_;
};

}  // namespace

ClientMessage read_client_message(Bytes bytes, std::uint32_t version) {
  ClientMessage message{
      .bytes = std::move(bytes), .header = {.credits = 0}, .version = version, .defect = {}};
  Parser parser(message);
  parser.fixed_words();
  if (!message.readable() || message.header.version != version) return message;
  if (version == 2) parser.flags();
  if (!message.readable() || message.header.proc > 1) return message;
  if (version == 2) parser.invalidate();
  parser.chunk_fields();
  return message;
}

RpcCall read_rpc_call(Bytes message) {
  RpcCall call{.message = std::move(message)};
  xdr::Reader reader(call.message);
  call.xid = reader.u32();
  const bool is_call = reader.u32() == 0 && reader.u32() == 2;
  call.program = reader.u32();
  call.version = reader.u32();
  call.procedure = reader.u32();
  call.flavor = reader.u32();
  const auto credential = reader.opaque(400);
  if (call.flavor == kRpcSecGss) {
    call.gss_control = word_at(credential, 1);
    call.gss_service = word_at(credential, 3);
  }
  reader.u32();
  reader.opaque(400);
  call.readable = is_call && reader.ok();
  call.arguments = call.readable ? reader.position() : call.message.size();
  return call;
}

std::vector<ReadChunk> read_chunks(const RawCall& header) {
  std::vector<ReadChunk> chunks;
  for (const RawRead& read : header.reads) {
    auto chunk = std::find_if(chunks.begin(), chunks.end(),
                              [&](const ReadChunk& c) { return c.position == read.position; });
    if (chunk == chunks.end()) chunk = chunks.insert(chunk, {.position = read.position});
    chunk->segments.push_back(read.segment);
  }
  return chunks;
}

std::optional<Bytes> assembled(std::span<const std::byte> stream, std::vector<ReadChunk> chunks) {
  std::sort(chunks.begin(), chunks.end(),
            [](const ReadChunk& a, const ReadChunk& b) { return a.position < b.position; });
  Bytes out;
  for (const ReadChunk& chunk : chunks) {
    if (chunk.position < out.size() || chunk.position - out.size() > stream.size()) return std::nullopt;
    const std::size_t before = chunk.position - out.size();
    append(out, stream.first(before));
    stream = stream.subspan(before);
    append(out, chunk.bytes);
    out.resize(padded(out.size()));
  }
  append(out, stream);
  return out;
}

}  // namespace sluice::conformance
