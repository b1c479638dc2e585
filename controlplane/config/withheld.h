// SPDX-License-Identifier: Apache-2.0
//
// Filters for information that would lead NFS version 4 clients past the gateway: the keys `pnfs` and
// `referrals` of [[upstream]] and [reverse]. Used at setup; single-threaded.
#pragma once

#include "controlplane/json/json.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Adds the keys to the description of their table.
inline Json with_withheld(Json table, const segment::WithheldConfig& withheld) {
  table["pnfs"] = withheld.pnfs != 0 ? "hide" : "pass";
  table["referrals"] = withheld.referrals != 0 ? "hide" : "pass";
  return table;
}

}  // namespace sluice::config
