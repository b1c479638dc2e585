// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/client_message.h"

#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "cli/conformance/placed_reply.h"
#include "cli/conformance/upper_layer.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/ulb/bindings.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kRpcSecGss = 6;

/// Removes the chunk with the lowest position from the list and returns it.
ReadChunk take_first(std::vector<ReadChunk>& chunks) {
  auto first = chunks.begin();
  for (auto chunk = first; chunk != chunks.end(); ++chunk)
    if (chunk->position < first->position) first = chunk;
  ReadChunk taken = std::move(*first);
  chunks.erase(first);
  return taken;
}

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
    auto chunk = chunks.begin();
    while (chunk != chunks.end() && chunk->position != read.position) ++chunk;
    if (chunk == chunks.end()) chunk = chunks.insert(chunk, {.position = read.position});
    chunk->segments.push_back(read.segment);
  }
  return chunks;
}

std::optional<Bytes> assembled(std::span<const std::byte> stream, std::vector<ReadChunk> chunks) {
  Bytes out;
  while (!chunks.empty()) {
    const ReadChunk chunk = take_first(chunks);
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

namespace {

constexpr std::uint32_t kReplyHeaderBytes = 24;  // with a verifier of AUTH_NONE
constexpr std::uint32_t kStatusBytes = 4;
/// Size of READ3resok without its data: attributes, count, eof, the count word of the data.
constexpr std::uint32_t kReadResultBytes = 88 + 12;

/// The call's arguments, with positions counted from the first byte of the RPC message.
class Arguments {
 public:
  explicit Arguments(const RpcCall& call) : base_(call.arguments), reader_(call.argument_bytes()) {}
  xdr::Reader& operator*() { return reader_; }
  xdr::Reader* operator->() { return &reader_; }
  void opaque() { reader_.opaque(kAnySize); }
  EligibleArgument eligible() {
    const std::uint32_t bytes = reader_.u32();
    const EligibleArgument item{static_cast<std::uint32_t>(base_ + reader_.position()), bytes};
    reader_.skip(smaller_of<std::uint64_t>(padded(bytes), reader_.remaining()));  // a chunk may be too short
    return item;
  }

 private:
  std::size_t base_;
  xdr::Reader reader_;
};

void skip_sattr3(xdr::Reader& reader) {
  for (int i = 0; i < 3; ++i)  // mode, uid, gid
    if (reader.u32() == 1) reader.u32();
  if (reader.u32() == 1) reader.u64();  // size
  for (int i = 0; i < 2; ++i)           // atime, mtime
    if (reader.u32() == 2) reader.u64();
}

UpperLayer nfs3(const RpcCall& call) {
  UpperLayer result{.known = true};
  Arguments at(call);
  if (call.procedure != ulb::kNfs3Null) at.opaque();  // a handle comes first
  switch (call.procedure) {
    case ulb::kNfs3Write:
      at->skip(16);  // offset, count, stable
      result.arguments = {at.eligible()};
      break;
    case ulb::kNfs3SymLink:
      at.opaque();
      skip_sattr3(*at);
      result.arguments = {at.eligible()};
      break;
    case ulb::kNfs3Read:
      at->skip(8);
      result.results = {at->u32()};
      result.largest_reply = kReplyHeaderBytes + kStatusBytes + kReadResultBytes;
      break;
    case ulb::kNfs3ReadLink:
      result.results = {kAnySize};
      break;
    case ulb::kNfs3ReadDir:
      at->skip(16);  // cookie, verifier
      result.largest_reply = kReplyHeaderBytes + kStatusBytes + at->u32();
      break;
    case ulb::kNfs3ReadDirPlus:
      at->skip(20);  // cookie, verifier, dircount
      result.largest_reply = kReplyHeaderBytes + kStatusBytes + at->u32();
      break;
    default:
      at->skip(at->remaining());
      break;
  }
  result.known = at->ok();
  result.left_over = at->remaining();
  return result;
}

/// Parses a COMPOUND of operations that clients combine with READ and WRITE. With any other operation the
/// call is unknown.
UpperLayer nfs4(const RpcCall& call) {
  enum : std::uint32_t {
    kGetAttr = 9,
    kPutFh = 22,
    kPutRootFh = 24,
    kRead = 25,
    kReadLink = 27,
    kRestoreFh = 31,
    kSaveFh = 32,
    kWrite = 38,
    kSequence = 53,
  };
  UpperLayer result;
  if (call.procedure == 0) return {.known = true};
  Arguments at(call);
  at.opaque();  // tag
  at->u32();    // minor version
  for (std::uint32_t left = at->u32(); left > 0 && at->ok(); --left) {
    switch (at->u32()) {
      case kSequence:
        at->skip(32);
        break;
      case kPutFh:
        at.opaque();
        break;
      case kGetAttr:
        for (std::uint32_t words = at->u32(); words > 0 && at->ok(); --words) at->u32();
        break;
      case kRead:
        at->skip(24);
        result.results.push_back(at->u32());
        break;
      case kReadLink:
        result.results.push_back(kAnySize);
        break;
      case kWrite:
        at->skip(28);  // state, offset, stable
        result.arguments.push_back(at.eligible());
        break;
      case kPutRootFh:
      case kSaveFh:
      case kRestoreFh:
        break;
      default:
        return {};
    }
  }
  result.known = at->ok();
  result.left_over = at->remaining();
  return result;
}

}  // namespace

UpperLayer upper_layer_of(const RpcCall& call) {
  if (!call.readable) return {};
  if (call.program == kNfs && call.version == 3) return nfs3(call);
  if (call.program == kNfs && call.version == 4) return nfs4(call);
  return {.known = call.program == kNfsAcl};
}

std::string name_of(const RpcCall& call) {
  static constexpr const char* kNfs3[] = {"NULL",   "GETATTR", "SETATTR",  "LOOKUP", "ACCESS",  "READLINK",
                                          "READ",   "WRITE",   "CREATE",   "MKDIR",  "SYMLINK", "MKNOD",
                                          "REMOVE", "RMDIR",   "RENAME",   "LINK",   "READDIR", "READDIRPLUS",
                                          "FSSTAT", "FSINFO",  "PATHCONF", "COMMIT"};
  if (!call.readable) return "an RPC message that is no call";
  if (call.program == kNfs && call.version == 3 && call.procedure < std::size(kNfs3))
    return kNfs3[call.procedure];
  if (call.program == kNfs && call.version == 4) return call.procedure == 0 ? "NULL" : "COMPOUND";
  return "procedure " + std::to_string(call.procedure) + " of program " + std::to_string(call.program);
}

namespace {

constexpr std::size_t kMostResults = 16;

/// Returns the offset of the results of an accepted call, or zero if there are none.
std::size_t results_at(std::span<const std::byte> reply) {
  xdr::Reader reader(reply);
  reader.u32();
  if (reader.u32() != 1 || reader.u32() != 0) return 0;
  reader.u32();
  reader.opaque(400);
  return reader.u32() == 0 && reader.ok() ? reader.position() : 0;
}

}  // namespace

PlacedReply place_results(const RpcCall& call, std::span<const std::byte> reply, std::size_t chunks) {
  PlacedReply placed{.payload = Bytes(reply.begin(), reply.end()), .results = {}};
  const std::size_t at = results_at(reply);
  const service::Binding* binding = ulb::find_binding(call.program, call.version);
  if (chunks == 0 || at == 0 || call.gss_service > 1 || binding == nullptr ||
      binding->result_items == nullptr)
    return placed;
  std::array<service::Item, kMostResults> items;
  const std::size_t found = binding->result_items(call.procedure, reply.subspan(at), nullptr, items);
  std::size_t kept_from = 0;
  placed.payload.clear();
  for (const service::Item& item :
       std::span(items).first(smaller_of(smaller_of(found, chunks), kMostResults))) {
    append(placed.payload, reply.subspan(kept_from, at + item.offset - kept_from));
    const auto data = reply.subspan(at + item.offset, item.bytes);
    placed.results.emplace_back(data.begin(), data.end());
    kept_from = at + item.offset + padded(item.bytes);
  }
  append(placed.payload, reply.subspan(kept_from));
  return placed;
}

}  // namespace sluice::conformance
