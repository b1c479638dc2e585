// SPDX-License-Identifier: Apache-2.0
//
// XDR encoding and decoding of NFS version 3 types (RFC 1813, section 2). Functions that take a FileSystem
// may be called by its reactor only. Functions own nothing. Times in ns since 1970, sizes in bytes. On an
// error the reader or writer fails, and its user checks ok().
#pragma once

#include <optional>

#include "dataplane/service/memory/filesystem.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::service::memory {

inline constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
inline constexpr std::uint32_t kMaxNfsHandle = 64;

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

void put_fattr3(xdr::Writer& out, const Inode& inode, InodeNumber number) noexcept;
void put_post_op_attr(xdr::Writer& out, FileSystem& fs, InodeNumber number) noexcept;  ///< zero: none
void put_post_op_fh3(xdr::Writer& out, FileSystem& fs, InodeNumber number) noexcept;

/// Attributes before an operation, for wcc_data.
struct WccBefore {
  InodeNumber number = 0;  ///< zero: no attributes
  std::uint64_t size = 0;
  std::uint64_t mtime_ns = 0;
  std::uint64_t ctime_ns = 0;
};
WccBefore wcc_before(FileSystem& fs, InodeNumber number) noexcept;
void put_wcc_data(xdr::Writer& out, FileSystem& fs, const WccBefore& before) noexcept;

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

}  // namespace sluice::service::memory
