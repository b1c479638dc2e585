// SPDX-License-Identifier: Apache-2.0
//
// The stub's device, which exists as long as the process, and its contexts (verbs_stub_functions.cc), for the
// stub's own sources.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>

namespace sluice::rdma::conformance {

/// Returns a new context of the device. The caller frees it by free_context().
ibv_context* make_context();
void free_context(ibv_context* context);
/// Sets the kernel driver in the device's folder of sysfs; empty for a device without hardware.
void set_driver(std::string_view driver);
/// Hides or shows the device's folder of sysfs.
void hide_folder(bool hide);
void set_transport(ibv_transport_type type);
/// Makes the descriptor of the context's asynchronous events readable once more, and once less.
void signal_event(ibv_context* context);
void take_signal(ibv_context* context);

}  // namespace sluice::rdma::conformance
