// SPDX-License-Identifier: Apache-2.0
//
// Detection of the io_uring features of the running kernel. It tries each feature, because kernel versions
// say little about features that are backported or forbidden. Any thread, at setup.
#pragma once

#include "dataplane/base/uring_features.h"

namespace sluice::tcp {

/// Returns the features that the kernel supports. Only the first call tries them.
UringFeatures uring_features_of_kernel();

}  // namespace sluice::tcp
