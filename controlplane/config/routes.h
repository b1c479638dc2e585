// SPDX-License-Identifier: Apache-2.0
//
// The programs of an [[upstream]]. Any thread.
#pragma once

#include <string>

#include "dataplane/segment/config_block.h"

namespace sluice::config {

bool is_same(const segment::RouteConfig& one, const segment::RouteConfig& other);
/// Whether the program is among those of the upstream.
bool takes(const segment::UpstreamConfig& upstream, const segment::RouteConfig& route);
/// As in the configuration: "nfs3", or numbers for a program without a name there.
std::string to_text(const segment::RouteConfig& route);

}  // namespace sluice::config
