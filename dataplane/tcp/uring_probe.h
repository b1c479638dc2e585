// SPDX-License-Identifier: Apache-2.0
//
// What the running kernel has of io_uring, found out by trying it: versions say little where features are
// ported back, or forbidden. Any thread, at setup.
#pragma once

#include "dataplane/base/uring_features.h"

namespace sluice::tcp {

UringFeatures uring_features_of_kernel();

}  // namespace sluice::tcp
