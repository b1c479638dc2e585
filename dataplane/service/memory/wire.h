// SPDX-License-Identifier: Apache-2.0
//
// XDR encoding and decoding of NFS version 3 types (RFC 1813, section 2). On an error the reader or writer
// fails, and its user checks ok(). Pure functions; any reactor.
#pragma once

#include <cstdint>
#include <optional>

#include "dataplane/service/memory/filesystem.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::service::memory {

inline constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
inline constexpr std::uint32_t kMaxNfsHandle = 64;
/// Maximum length of a name that is decoded. Longer names are answered with GARBAGE_ARGS, and names longer
/// than kMaxNameBytes with NFS3ERR_NAMETOOLONG.
inline constexpr std::uint32_t kMaxNameOnWire = 4096;

inline void put_status(xdr::Writer& out, Status status) noexcept {
  out.u32(static_cast<std::uint32_t>(status));
}

inline void put_time(xdr::Writer& out, std::uint64_t ns) noexcept {
  out.u32(static_cast<std::uint32_t>(ns / kNsPerSecond));
  out.u32(static_cast<std::uint32_t>(ns % kNsPerSecond));
}

inline std::uint64_t get_time(xdr::Reader& in) noexcept {
  const std::uint64_t seconds = in.u32();
  return seconds * kNsPerSecond + in.u32();
}

void put_fattr3(xdr::Writer& out, const FileAttributes& file, InodeNumber number) noexcept;
/// Writes post_op_attr with the attributes of a file that exists.
inline void put_post_op_attr(xdr::Writer& out, const FileAttributes& file, InodeNumber number) noexcept {
  out.boolean(true);
  put_fattr3(out, file, number);
}
void put_post_op_attr(xdr::Writer& out, const FileSystem& fs, InodeNumber number) noexcept;  ///< zero: none
void put_post_op_fh3(xdr::Writer& out, const FileSystem& fs, InodeNumber number) noexcept;

/// Attributes before an operation, for wcc_data.
struct WccBefore {
  InodeNumber number = 0;  ///< zero: no attributes
  std::uint64_t size = 0;
  std::uint64_t mtime_ns = 0;
  std::uint64_t ctime_ns = 0;
};
WccBefore wcc_before(const FileSystem& fs, InodeNumber number) noexcept;
void put_wcc_data(xdr::Writer& out, const FileSystem& fs, const WccBefore& before) noexcept;
/// Writes wcc_data of a procedure that does not change the file.
void put_unchanged_wcc_data(xdr::Writer& out, const FileAttributes& file, InodeNumber number) noexcept;

struct SetAttributes {
  std::optional<std::uint16_t> mode{};
  std::optional<std::uint32_t> uid{};
  std::optional<std::uint32_t> gid{};
  std::optional<std::uint64_t> size{};
  enum class Time : std::uint8_t { DontChange = 0, Server = 1, Client = 2 };
  Time atime = Time::DontChange;
  Time mtime = Time::DontChange;
  std::uint64_t atime_ns = 0;
  std::uint64_t mtime_ns = 0;
};
SetAttributes get_sattr3(xdr::Reader& in) noexcept;

/// Maximum and default of the values of rtmax and wtmax (RFC 1813, section 3.3.19), in bytes.
inline constexpr std::uint32_t kMaxTransferBytes = 4u << 20;
inline constexpr std::uint32_t kDefaultTransferBytes = 1u << 20;
inline constexpr std::uint32_t kMaxReaddirBytes = 64u << 10;
inline constexpr std::uint16_t kSetUid = 04000;
inline constexpr std::uint16_t kSetGid = 02000;
inline constexpr std::uint16_t kSticky = 01000;
/// Blocks of the largest transfer if it starts and ends inside blocks.
inline constexpr std::uint32_t kMaxTransferBlocks = kMaxTransferBytes / kLargeBytes + 1;

}  // namespace sluice::service::memory
