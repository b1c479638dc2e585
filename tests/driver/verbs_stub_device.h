// SPDX-License-Identifier: Apache-2.0
//
// The objects of the stub's device that exist as long as the process (verbs_stub_functions.cc), for the
// stub's own sources.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>

namespace sluice::rdma::conformance {

ibv_context* stub_context();
/// The protection domain, which is that of every user.
ibv_pd* stub_domain();
/// Sets the kernel driver in the device's folder of sysfs; empty for a device without hardware.
void set_driver(std::string_view driver);
/// Hides or shows the device's folder of sysfs.
void hide_folder(bool hide);
void set_transport(ibv_transport_type type);
/// Makes the descriptor of asynchronous events readable once more, and once less.
void signal_event();
void take_signal();

}  // namespace sluice::rdma::conformance
