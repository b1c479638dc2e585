// SPDX-License-Identifier: Apache-2.0
//
// Answers that tests need about the device under test, found by trying. Throw LoopError if queue pairs cannot
// be connected.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cli/card_check/loop.h"
#include "dataplane/base/net_address.h"

namespace sluice::card_check {

/// Reads `bytes` from the memory of the left queue pair, from offset `at`, by the right one. Returns the
/// status of the completion.
ibv_wc_status read_status(Loop& loop, std::uint64_t wr_id, std::ptrdiff_t at, std::uint32_t bytes,
                          std::uint32_t rkey);

/// Returns whether accesses that begin before a window or end behind it are refused. Requires windows.
bool holds_window_bounds();

/// Returns the sender's status of a message that is longer than its Receive.
ibv_wc_status status_of_too_long();

/// Returns the status of a Send whose memory is in no region.
ibv_wc_status status_of_local_error();

bool has_shared_receives();

/// Returns the address of this entry of the GID table.
PeerAddress address_of_gid(std::uint32_t index);

}  // namespace sluice::card_check
