// SPDX-License-Identifier: Apache-2.0
//
// Listening sockets of HTTP servers. Setup; one thread.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/file_descriptor.h"

namespace sluice::http {

/// Returns a non-blocking socket that listens on "ADDRESS:PORT". An IPv6 address is in brackets, "localhost"
/// means 127.0.0.1, and port zero selects any free port. Throws std::runtime_error with the address and the
/// problem.
FileDescriptor listen_on(const std::string& address);
std::uint16_t port_of(const FileDescriptor& socket);

}  // namespace sluice::http
