// SPDX-License-Identifier: Apache-2.0
//
// NFSv3 calls for comparisons of servers, the file on which they operate, and the processor time that a
// server spends on them.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include "cli/bench/client.h"
#include "dataplane/rpc/message.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::bench {

using Bytes = std::vector<std::byte>;

/// The procedure under load. READs and WRITEs proceed through the file and start over at its end.
struct CallShape {
  std::uint32_t procedure = ulb::kNfs3Null;
  std::uint32_t read_bytes = 0;
  std::uint32_t write_bytes = 0;
};
inline constexpr CallShape kNull{};
inline constexpr CallShape kGetAttr{ulb::kNfs3GetAttr, 0};
inline constexpr CallShape kRead4k{ulb::kNfs3Read, 4096};
inline constexpr CallShape kRead1m{ulb::kNfs3Read, 1u << 20};
inline constexpr CallShape kWrite4k{ulb::kNfs3Write, 0, 4096};
inline constexpr CallShape kWrite1m{ulb::kNfs3Write, 0, 1u << 20};

inline constexpr std::uint32_t kFileBytes = 1u << 20;

/// Returns a call without the data of a WRITE, which follows it.
inline Bytes call_message(const CallShape& shape, std::span<const std::byte> file) {
  CallBuilder builder(ulb::kNfsProgram, ulb::kNfs3Version, shape.procedure);
  if (shape.procedure != ulb::kNfs3Null) builder.arguments().opaque(file);
  if (shape.procedure == ulb::kNfs3Read) builder.arguments().words(0, 0, shape.read_bytes);
  if (shape.procedure == ulb::kNfs3Write)
    builder.arguments().words(0, 0, shape.write_bytes, 0, shape.write_bytes);  // UNSTABLE
  return {builder.message().begin(), builder.message().end()};
}

/// Turns a message of call_message() into the `number`th call by setting its XID and the file offset of a
/// READ or WRITE.
inline void renumber(std::span<std::byte> message, const CallShape& shape, std::uint32_t number) {
  xdr::store_u32(message.data(), number);
  const std::uint64_t bytes = shape.read_bytes + shape.write_bytes;
  if (bytes == 0) return;
  const std::size_t after_offset = shape.write_bytes > 0 ? 16 : 8;  // the low word, and what follows it
  xdr::store_u32(&message[message.size() - after_offset],
                 static_cast<std::uint32_t>(number * bytes % kFileBytes));
}

/// Throws unless the call succeeded. Returns a reader positioned after the NFS status (NULL has none).
inline xdr::Reader expect_success(std::span<const std::byte> reply, bool has_status = true) {
  xdr::Reader reader(reply);
  const rpc::ReplyDecodeResult decoded = rpc::decode_reply(reader);
  if (!decoded.ok || !decoded.header.success() || (has_status && reader.u32() != 0))
    throw std::runtime_error("The server answers with an error: may root write to its export?");
  return reader;
}

/// Throws unless the reply is the success of a call of `shape`, and one to a WRITE counts all of its data.
inline void expect_done(std::span<const std::byte> reply, const CallShape& shape) {
  xdr::Reader reader = expect_success(reply, shape.procedure != ulb::kNfs3Null);
  if (shape.write_bytes == 0) return;
  constexpr std::size_t kPreAttributes = 24, kAttributes = 84;  // bytes
  if (reader.boolean()) reader.skip(kPreAttributes);
  if (reader.boolean()) reader.skip(kAttributes);
  if (reader.u32() != shape.write_bytes) throw std::runtime_error("The server has not written all data.");
}

/// Creates a file of kFileBytes. `transact` sends a call and returns its reply.
template <typename Transact>
Bytes make_file(std::span<const std::byte> root, Transact&& transact) {
  CallBuilder create(ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3Create);
  create.arguments().opaque(root);
  create.arguments().string("sluice-bench");
  create.arguments().u32(0);  // UNCHECKED
  for (const std::uint32_t word : {1u, 0666u, 0u, 0u, 0u, 0u, 0u}) create.arguments().u32(word);
  const Bytes created = transact(create.message());
  xdr::Reader reader = expect_success(created);
  if (!reader.boolean()) throw std::runtime_error("CREATE answered no file handle.");
  const auto handle = reader.opaque(64);
  const Bytes file(handle.begin(), handle.end());
  constexpr std::uint32_t kBlockBytes = 1024;
  const std::array<std::byte, kBlockBytes> block{std::byte{1}};
  for (std::uint32_t at = 0; at < kFileBytes; at += kBlockBytes) {
    CallBuilder write(ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3Write);
    write.arguments().opaque(file);
    write.arguments().words(0, at, kBlockBytes, 2);  // FILE_SYNC
    write.arguments().opaque(block);
    expect_success(transact(write.message()));
  }
  return file;
}

/// Processor time of another process: all its threads, user and system.
class ProcessorTime {
 public:
  explicit ProcessorTime(pid_t pid) {
    if (::clock_getcpuclockid(pid, &clock_) != 0) throw std::runtime_error("There is no such process.");
  }
  double ns() const {
    timespec used{};
    ::clock_gettime(clock_, &used);
    return static_cast<double>(used.tv_sec) * 1e9 + static_cast<double>(used.tv_nsec);
  }

 private:
  clockid_t clock_{};
};

}  // namespace sluice::bench
