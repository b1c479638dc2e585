// SPDX-License-Identifier: Apache-2.0
//
// The programs of an [[upstream]]. Any thread.
#pragma once

#include <string>

#include "dataplane/segment/config_block.h"

namespace sluice::config {

bool is_same(const segment::RouteConfig& one, const segment::RouteConfig& other);
/// Returns true if the upstream serves the program.
bool takes(const segment::UpstreamConfig& upstream, const segment::RouteConfig& route);
/// Returns the text form of the configuration: "nfs3", or numbers for a program without a name there.
std::string to_text(const segment::RouteConfig& route);

}  // namespace sluice::config
