// SPDX-License-Identifier: Apache-2.0
//
// Functions that the tests share: calls of NFS version 3, replies of either version of RPC-over-RDMA, and
// properties of version 2.
#include "cli/conformance/nfs.h"

#include <cstdint>
#include <string>

#include "cli/conformance/v2_calls.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kInlineBytes = 512;  // file data in a message without chunks
constexpr std::uint32_t kMostEntries = 256;  // entries of a list in a reply
constexpr std::size_t kAttributeBytes = 84;
constexpr std::uint32_t kFileSync = 2;

void opaque(Bytes& to, std::span<const std::byte> bytes) {
  append(to, words({static_cast<std::uint32_t>(bytes.size())}));
  append(to, bytes);
  to.resize(xdr::padded(to.size()));
}
void text(Bytes& to, const std::string& string) {
  opaque(to, std::as_bytes(std::span(string)));
}

Bytes call(std::uint32_t xid, std::uint32_t procedure) {
  Bytes out = words({xid, 0, 2, ulb::kNfsProgram, ulb::kNfs3Version, procedure, 1, 28, 0});
  text(out, "conform");
  append(out, words({0, 0, 0, 0, 0}));
  return out;
}
Bytes call(std::uint32_t xid, std::uint32_t procedure, const Bytes& handle) {
  Bytes out = call(xid, procedure);
  opaque(out, handle);
  return out;
}

Segments read_segments(xdr::Reader& reader) {
  const std::uint32_t count = reader.u32();
  Segments result;
  for (std::uint32_t i = 0; i < count && reader.ok() && i < kMostEntries; ++i) {
    const auto handle = static_cast<rdma::Rkey>(reader.u32());
    const std::uint32_t length = reader.u32();
    result.push_back({handle, length, reader.u64()});
  }
  if (result.size() != count) throw Failure("The chunks of a reply cannot be read.");
  return result;
}

/// Reads the four words that begin a reply of either version. Throws Failure with the version's names of the
/// message type and of the error if the message has another type.
RawReply read_prefix(xdr::Reader& reader, const char* type, const char* error_name, std::uint32_t error) {
  RawReply result;
  result.xid = reader.u32();
  result.version = reader.u32();
  result.credit = reader.u32();
  result.proc = reader.u32();
  if (result.proc <= 1) return result;
  std::string problem = std::string("The answer is no reply: ") + type + " is " + std::to_string(result.proc);
  if (result.proc == 4) problem += std::string(", ") + error_name + " " + std::to_string(error);
  throw Failure(problem + ".");
}

void read_lists(xdr::Reader& reader, RawReply& result) {
  if (reader.u32() != 0) throw Failure("A reply has a Read list (V1-090).");
  while (reader.boolean() && result.writes.size() < kMostEntries)
    result.writes.push_back(read_segments(reader));
  if (reader.boolean()) result.reply = read_segments(reader);
  if (!reader.ok()) throw Failure("The header of a reply cannot be read.");
  const auto rest = reader.rest();
  result.payload.assign(rest.begin(), rest.end());
}

xdr::Reader results_of(std::span<const std::byte> payload) {
  const std::uint32_t stat = accept_stat_of(payload);
  if (stat != 0) throw Failure("The call was answered with accept_stat " + std::to_string(stat) + ".");
  xdr::Reader reader(payload);
  for (int i = 0; i < 4; ++i) reader.u32();
  reader.opaque(400);
  reader.u32();
  return reader;
}

void expect_ok(Trial& trial, const Bytes& payload, const char* what) {
  const std::uint32_t status = nfs_status(payload);
  trial.expect(status == 0, std::string(what) + " succeeds, but its status is " + std::to_string(status));
}

}  // namespace

RawReply read_v1(const Bytes& message) {
  xdr::Reader reader(message);
  RawReply result = read_prefix(reader, "rdma_proc", "rdma_err", word_at(message, 4));
  read_lists(reader, result);
  return result;
}

RawReply read_v2(const Bytes& message) {
  xdr::Reader reader(message);
  RawReply result = read_prefix(reader, "its type", "its error", word_at(message, 5));
  if ((reader.u32() & v2::kResponse) == 0) throw Failure("A reply has no RESPONSE flag (V2-024).");
  reader.u32();
  read_lists(reader, result);
  return result;
}

std::uint64_t bytes_in(const Segments& segments) {
  std::uint64_t sum = 0;
  for (const auto& segment : segments) sum += segment.length;
  return sum;
}

std::uint32_t accept_stat_of(std::span<const std::byte> payload) {
  xdr::Reader reader(payload);
  reader.u32();
  const bool is_reply = reader.u32() == 1;
  const bool accepted = reader.u32() == 0;
  reader.u32();
  reader.opaque(400);
  const std::uint32_t stat = reader.u32();
  if (!reader.ok() || !is_reply || !accepted) throw Failure("The payload is no accepted RPC reply.");
  return stat;
}

Bytes null_payload(std::uint32_t xid) {
  return rpc_call(xid, ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3Null);
}
Bytes null_v1(std::uint32_t xid) {
  return RawCall{.xid = xid}.with(null_payload(xid));
}
Bytes null_v2(std::uint32_t xid) {
  return v2::Header{.xid = xid}.with(null_payload(xid));
}

Bytes getattr_payload(std::uint32_t xid, const Bytes& handle) {
  return call(xid, ulb::kNfs3GetAttr, handle);
}
Bytes lookup_payload(std::uint32_t xid, const Bytes& folder, const std::string& name) {
  Bytes out = call(xid, ulb::kNfs3Lookup, folder);
  text(out, name);
  return out;
}
Bytes read_payload(std::uint32_t xid, const Bytes& file, std::uint64_t offset, std::uint32_t count) {
  Bytes out = call(xid, ulb::kNfs3Read, file);
  append(out, words({static_cast<std::uint32_t>(offset >> 32), static_cast<std::uint32_t>(offset), count}));
  return out;
}
Bytes write_payload(std::uint32_t xid, const Bytes& file, std::uint64_t offset, std::uint32_t count) {
  Bytes out = call(xid, ulb::kNfs3Write, file);
  append(out, words({static_cast<std::uint32_t>(offset >> 32), static_cast<std::uint32_t>(offset), count,
                     kFileSync, count}));
  return out;
}
Bytes create_payload(std::uint32_t xid, const Bytes& folder, const std::string& name) {
  Bytes out = call(xid, ulb::kNfs3Create, folder);
  text(out, name);
  append(out, words({0, 1, 0644, 0, 0, 0, 0, 0}));  // UNCHECKED; only the mode is set
  return out;
}
Bytes remove_payload(std::uint32_t xid, const Bytes& folder, const std::string& name) {
  Bytes out = call(xid, ulb::kNfs3Remove, folder);
  text(out, name);
  return out;
}
Bytes symlink_payload(std::uint32_t xid, const Bytes& folder, const std::string& name,
                      std::uint32_t path_bytes) {
  Bytes out = call(xid, ulb::kNfs3SymLink, folder);
  text(out, name);
  append(out, words({1, 0777, 0, 0, 0, 0, 0, path_bytes}));
  return out;
}
Bytes readlink_payload(std::uint32_t xid, const Bytes& link) {
  return call(xid, ulb::kNfs3ReadLink, link);
}
Bytes readdir_payload(std::uint32_t xid, const Bytes& folder, std::uint32_t count) {
  Bytes out = call(xid, ulb::kNfs3ReadDir, folder);
  append(out, words({0, 0, 0, 0, count}));
  return out;
}

std::uint32_t nfs_status(std::span<const std::byte> payload) {
  xdr::Reader reader = results_of(payload);
  const std::uint32_t status = reader.u32();
  if (!reader.ok()) throw Failure("The results end before their status.");
  return status;
}

ReadResult read_result(std::span<const std::byte> payload) {
  xdr::Reader reader = results_of(payload);
  const std::uint32_t status = reader.u32();
  if (status != 0) throw Failure("READ failed with status " + std::to_string(status) + ".");
  if (reader.boolean()) reader.skip(kAttributeBytes);
  ReadResult result;
  result.count = reader.u32();
  reader.u32();
  result.length = reader.u32();
  if (!reader.ok()) throw Failure("The results of READ cannot be read.");
  const auto rest = reader.rest();
  result.inline_data.assign(rest.begin(), rest.end());
  return result;
}

void expect_one_read(Trial& trial, const RawReply& reply, const Exposed& memory) {
  trial.expect(read_result(reply.payload).count == kFileBytes && has_pattern(memory.bytes, kFileSeed),
               "the READ succeeds");
  trial.expect(trial.overheard() == 0, "one answer");
}

Bytes made_handle(std::span<const std::byte> payload) {
  xdr::Reader reader = results_of(payload);
  reader.u32();
  if (!reader.boolean()) return {};
  const auto handle = reader.opaque(64);
  return {handle.begin(), handle.end()};
}

void make_file(Trial& trial, Target& target) {
  trial.connect();
  const std::uint32_t xid = trial.next_xid();
  const Bytes made =
      read_v1(trial.ask(RawCall{.xid = xid}.with(create_payload(xid, target.root, target.name)))).payload;
  if (nfs_status(made) != 0) return;
  const Bytes handle = made_handle(made);
  write_file(trial, handle);
  target.file = handle;
}

void write_file(Trial& trial, const Bytes& handle) {
  Bytes content(kInlineBytes);
  for (std::uint32_t at = 0; at < kFileBytes; at += kInlineBytes) {
    const std::uint32_t xid = trial.next_xid();
    Bytes payload = write_payload(xid, handle, at, kInlineBytes);
    for (std::uint32_t i = 0; i < kInlineBytes; ++i) content[i] = pattern_byte(kFileSeed, at + i);
    append(payload, content);
    expect_ok(trial, read_v1(trial.ask(RawCall{.xid = xid}.with(payload))).payload, "a WRITE without chunks");
  }
}

void remove_file(Trial& trial, const Target& target) {
  if (target.file.empty()) return;
  trial.connect();
  const std::uint32_t xid = trial.next_xid();
  trial.ask(RawCall{.xid = xid}.with(remove_payload(xid, target.root, target.name)));
}

RawCall long_call(Trial& trial, std::uint32_t xid, const Bytes& payload, std::uint32_t segments) {
  const auto bytes = static_cast<std::uint32_t>(payload.size());
  const Exposed memory = trial.readable(bytes, 0);
  place(memory, payload);
  RawCall call{.xid = xid, .proc = 1};
  for (std::uint32_t i = 0; i < segments; ++i) {
    const std::uint32_t from = bytes * i / segments;
    call.reads.push_back({0, part(memory.segment, from, bytes * (i + 1) / segments - from)});
  }
  return call;
}

Bytes file_content(Trial& trial, std::uint64_t offset, std::uint32_t bytes) {
  Bytes content;
  while (content.size() < bytes) {
    const std::uint32_t xid = trial.next_xid();
    const auto count =
        smaller_of<std::uint32_t>(kInlineBytes, bytes - static_cast<std::uint32_t>(content.size()));
    const ReadResult result =
        read_result(read_v1(trial.ask(RawCall{.xid = xid}.with(
                                read_payload(xid, trial.target.file, offset + content.size(), count))))
                        .payload);
    if (result.count != count || result.inline_data.size() < count)
      throw Failure("A READ without chunks returned less than was written.");
    append(content, std::span(result.inline_data).first(count));
  }
  return content;
}

// --- Version 2

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
