// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl credits': what the credit policy grants, and how much of it is used. The control plane's thread.
#pragma once

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "controlplane/policy/credit_keeper.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// By reactor and by class of clients, with the policy's own statistics. Times of `now_ns` are
/// segment::monotonic_ns().
Json credits(const segment::Layout& layout, const config::Config& config, const policy::CreditKeeper& keeper,
             std::uint64_t now_ns);

}  // namespace sluice::admin
