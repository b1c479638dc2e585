// SPDX-License-Identifier: Apache-2.0
//
// NFS version 3 as the tests need it: payloads of calls, and what replies say (RFC 1813). Functions throw Failure for
// replies that cannot be read. The thread of the link.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/conformance/trial.h"

namespace sluice::conformance {

using Segments = std::vector<rpcrdma::Segment>;

inline constexpr std::uint32_t kFileBytes = 16384;  ///< of the file that the tests read
inline constexpr std::uint32_t kFileSeed = 77;      ///< of its pattern

/// A reply or an error, its header taken apart. `proc` is the type in version 2.
struct RawReply {
  std::uint32_t xid = 0, version = 0, credit = 0, proc = 0;
  std::vector<Segments> writes;
  std::optional<Segments> reply;
  Bytes payload;
};
/// Of an RDMA_MSG or RDMA_NOMSG.
RawReply read_v1(const Bytes& message);
RawReply read_v2(const Bytes& message);
/// Sum of the lengths.
std::uint64_t bytes_in(const Segments& segments);
/// Of an accepted reply; anything else fails.
std::uint32_t accept_stat_of(std::span<const std::byte> payload);

Bytes null_payload(std::uint32_t xid);
Bytes null_v1(std::uint32_t xid);
Bytes null_v2(std::uint32_t xid);

// Payloads with AUTH_SYS, user 0.
Bytes getattr_payload(std::uint32_t xid, const Bytes& handle);
Bytes lookup_payload(std::uint32_t xid, const Bytes& folder, const std::string& name);
Bytes read_payload(std::uint32_t xid, const Bytes& file, std::uint64_t offset, std::uint32_t count);
/// Up to the count word of the data, whose position is the payload's length.
Bytes write_payload(std::uint32_t xid, const Bytes& file, std::uint64_t offset, std::uint32_t count);
Bytes create_payload(std::uint32_t xid, const Bytes& folder, const std::string& name);
Bytes remove_payload(std::uint32_t xid, const Bytes& folder, const std::string& name);
/// Up to the length word of the path, whose position is the payload's length.
Bytes symlink_payload(std::uint32_t xid, const Bytes& folder, const std::string& name,
                      std::uint32_t path_bytes);
Bytes readlink_payload(std::uint32_t xid, const Bytes& link);
Bytes readdir_payload(std::uint32_t xid, const Bytes& folder, std::uint32_t count);

inline std::uint32_t position_of(const Bytes& payload) {
  return static_cast<std::uint32_t>(payload.size());
}

/// The nfsstat3 of a reply that was accepted with success.
std::uint32_t nfs_status(std::span<const std::byte> payload);
struct ReadResult {
  std::uint32_t count = 0;
  std::uint32_t length = 0;  ///< of the opaque data, wherever it is
  Bytes inline_data;         ///< what follows in the payload, with its padding
};
/// Of a READ that succeeded.
ReadResult read_result(std::span<const std::byte> payload);
/// Handle of a CREATE or SYMLINK that succeeded; empty: the server gave none.
Bytes made_handle(std::span<const std::byte> payload);

/// Makes the file with messages that have no chunks. Without the right to write, the target has none.
/// Throws Failure when the server cannot even do that.
void make_file(Trial& trial, Target& target);
/// Its content is as it was made.
void write_file(Trial& trial, const Bytes& handle);
void remove_file(Trial& trial, const Target& target);

/// An RDMA_NOMSG whose Position Zero chunk holds the payload, in so many segments.
RawCall long_call(Trial& trial, std::uint32_t xid, const Bytes& payload, std::uint32_t segments = 1);

/// What the file holds there, by READ calls without chunks on the trial's connection (version 1).
Bytes file_content(Trial& trial, std::uint64_t offset, std::uint32_t bytes);

}  // namespace sluice::conformance
