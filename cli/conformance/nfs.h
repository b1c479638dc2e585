// SPDX-License-Identifier: Apache-2.0
//
// The part of NFS version 3 that the tests need: payloads of calls, and contents of replies (RFC 1813).
// Functions throw Failure for replies that cannot be read. They run on the thread of the link.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/conformance/trial.h"

namespace sluice::conformance {

using Segments = std::vector<rpcrdma::Segment>;

inline constexpr std::uint32_t kFileBytes = 16384;  ///< size of the file that the tests read
inline constexpr std::uint32_t kFileSeed = 77;      ///< seed of the file's pattern

/// A reply or an error with its header parsed. `proc` is the type in version 2.
struct RawReply {
  std::uint32_t xid = 0, version = 0, credit = 0, proc = 0;
  std::vector<Segments> writes;
  std::optional<Segments> reply;
  Bytes payload;
};
/// Parse an RDMA_MSG or RDMA_NOMSG.
RawReply read_v1(const Bytes& message);
RawReply read_v2(const Bytes& message);
/// Returns the sum of the lengths.
std::uint64_t bytes_in(const Segments& segments);
/// Returns the accept_stat of an accepted reply. Throws Failure for any other reply.
std::uint32_t accept_stat_of(std::span<const std::byte> payload);

Bytes null_payload(std::uint32_t xid);
Bytes null_v1(std::uint32_t xid);
Bytes null_v2(std::uint32_t xid);

// Payloads with AUTH_SYS, user 0.
Bytes getattr_payload(std::uint32_t xid, const Bytes& handle);
Bytes lookup_payload(std::uint32_t xid, const Bytes& folder, const std::string& name);
Bytes read_payload(std::uint32_t xid, const Bytes& file, std::uint64_t offset, std::uint32_t count);
/// Returns a WRITE up to the count word of the data. The position of the data is the payload's length.
Bytes write_payload(std::uint32_t xid, const Bytes& file, std::uint64_t offset, std::uint32_t count);
Bytes create_payload(std::uint32_t xid, const Bytes& folder, const std::string& name);
Bytes remove_payload(std::uint32_t xid, const Bytes& folder, const std::string& name);
/// Returns a SYMLINK up to the length word of the path. The position of the path is the payload's length.
Bytes symlink_payload(std::uint32_t xid, const Bytes& folder, const std::string& name,
                      std::uint32_t path_bytes);
Bytes readlink_payload(std::uint32_t xid, const Bytes& link);
Bytes readdir_payload(std::uint32_t xid, const Bytes& folder, std::uint32_t count);

inline std::uint32_t position_of(const Bytes& payload) {
  return static_cast<std::uint32_t>(payload.size());
}

/// Returns the nfsstat3 of a reply that was accepted with success.
std::uint32_t nfs_status(std::span<const std::byte> payload);
struct ReadResult {
  std::uint32_t count = 0;
  std::uint32_t length = 0;  ///< length of the opaque data, inline or in a chunk
  Bytes inline_data;         ///< data that follows in the payload, with its padding
};
/// Returns the result of a READ that succeeded.
ReadResult read_result(std::span<const std::byte> payload);
/// Checks that the reply is of a READ of the whole file into this memory, and that no other answer follows.
void expect_one_read(Trial& trial, const RawReply& reply, const Exposed& memory);
/// Returns the handle of a CREATE or SYMLINK that succeeded. Empty if the server has returned none.
Bytes made_handle(std::span<const std::byte> payload);

/// Creates the file with messages that have no chunks. Without write permission the target has no file.
/// Throws Failure if the server cannot do that.
void make_file(Trial& trial, Target& target);
/// Writes the original content to the file.
void write_file(Trial& trial, const Bytes& handle);
void remove_file(Trial& trial, const Target& target);

/// Returns an RDMA_NOMSG whose Position Zero chunk holds the payload, in the given number of segments.
RawCall long_call(Trial& trial, std::uint32_t xid, const Bytes& payload, std::uint32_t segments = 1);

/// Returns the content of the file, read by READ calls without chunks on the trial's connection (version 1).
Bytes file_content(Trial& trial, std::uint64_t offset, std::uint32_t bytes);

}  // namespace sluice::conformance
