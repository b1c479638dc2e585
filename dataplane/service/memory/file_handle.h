// SPDX-License-Identifier: Apache-2.0
//
// NFSv3 file handles that cannot be guessed: what they name, and a keyed MAC over it.
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
  /// The start of the file system that made it, so that what is lost with a restart stays stale; of an
  /// export's root, what is the same after each start.
  std::uint64_t token = 0;
};

HandleBytes encode_handle(const HashKey& key, const FileHandle& handle) noexcept;
/// Nothing for a handle of another size, or that this key did not make: NFS3ERR_BADHANDLE.
std::optional<FileHandle> decode_handle(const HashKey& key, std::span<const std::byte> bytes) noexcept;

}  // namespace sluice::service::memory
