// SPDX-License-Identifier: Apache-2.0
//
// Helpers shared by the bindings for finding DDP-eligible items. Pure; any thread.
#pragma once

#include <span>

#include "dataplane/service/api/binding.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::ulb {

/// Stores the counted opaque at the reader's position as the only item. Returns the number of items stored,
/// which is zero if the opaque is truncated.
inline std::size_t item_here(xdr::Reader& reader, std::span<service::Item> items,
                             service::PlacedResults* placed = nullptr) noexcept {
  const std::uint32_t bytes = reader.u32();
  const std::size_t offset = reader.position();
  const bool taken_out = reader.ok() && placed != nullptr && placed->placed(0, bytes);
  if (!taken_out) reader.skip(xdr::padded(bytes));
  if (!reader.ok() && placed != nullptr) placed->unreadable();
  if (!reader.ok() || items.empty()) return 0;
  items[0] = {offset, bytes, taken_out};
  return 1;
}

/// Stores `bytes` as the maximum length of the only item of the results. Returns the number of lengths
/// stored.
inline std::size_t expect_item(std::uint64_t bytes, std::span<std::uint32_t> most_bytes) noexcept {
  if (most_bytes.empty()) return 0;
  most_bytes[0] = static_cast<std::uint32_t>(bytes);
  return 1;
}

}  // namespace sluice::ulb
