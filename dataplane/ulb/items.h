// SPDX-License-Identifier: Apache-2.0
//
// What the bindings' ways of finding eligible items have in common. Pure; any thread.
#pragma once

#include <span>

#include "dataplane/rpcrdma/binding.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::ulb {

/// The counted opaque that the reader stands at, as the only item; none when it is not all there.
inline std::size_t item_here(xdr::Reader& reader, std::span<rpcrdma::Item> items) noexcept {
  const std::uint32_t bytes = reader.u32();
  const std::size_t offset = reader.position();
  reader.skip(xdr::padded(bytes));
  if (!reader.ok() || items.empty()) return 0;
  items[0] = {offset, bytes};
  return 1;
}

}  // namespace sluice::ulb
