// SPDX-License-Identifier: Apache-2.0
//
// The view of devices that administrators have: what reactors poll, and which RDMA ports the machine has.
#pragma once

#include <nlohmann/json.hpp>

#include "dataplane/segment/segment.h"

namespace sluice::admin {

nlohmann::json devices(const segment::Layout& layout, const segment::ConfigBlock& block);

}  // namespace sluice::admin
