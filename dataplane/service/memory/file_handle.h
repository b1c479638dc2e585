// SPDX-License-Identifier: Apache-2.0
//
// NFSv3 file handles that cannot be guessed. A handle contains the identity of a file and a keyed MAC over
// it. Pure functions, which own nothing and only read `bytes`; any thread. Sizes in bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/siphash.h"

namespace sluice::service::memory {

inline constexpr std::size_t kHandleBytes = 32;
using HandleBytes = std::array<std::byte, kHandleBytes>;

struct FileHandle {
  std::uint32_t export_id = 0;
  std::uint32_t inode = 0;
  std::uint32_t generation = 0;
  /// FileSystem::start() of the instance that created the file, so that handles of files lost in a restart
  /// are stale. For the root of an export it is a value that survives restarts.
  std::uint64_t token = 0;
};

HandleBytes encode_handle(const HashKey& key, const FileHandle& handle) noexcept;
/// Decodes a handle. Returns nothing for a handle of another size, or one not made with this key: answer
/// NFS3ERR_BADHANDLE.
std::optional<FileHandle> decode_handle(const HashKey& key, std::span<const std::byte> bytes) noexcept;

}  // namespace sluice::service::memory
