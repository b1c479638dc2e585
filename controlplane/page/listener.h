// SPDX-License-Identifier: Apache-2.0
//
// The socket that the status page is served on. Setup; one thread.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"

namespace sluice::page {

/// Bound to "ADDRESS:PORT", where an address of IPv6 stands in brackets and "localhost" is 127.0.0.1; it listens and does not
/// block. Port zero: any that is free. Throws SetupError.
FileDescriptor listen_on(const std::string& address);
std::uint16_t port_of(const FileDescriptor& socket);

}  // namespace sluice::page
