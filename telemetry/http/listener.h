// SPDX-License-Identifier: Apache-2.0
//
// The socket that an HTTP server listens on. Setup; one thread.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/base/file_descriptor.h"

namespace sluice::http {

/// Returns a socket that listens on "ADDRESS:PORT" and does not block. An address of IPv6 stands in brackets, "localhost" is
/// 127.0.0.1, and port zero is any that is free. Throws std::runtime_error with the address and what is wrong.
FileDescriptor listen_on(const std::string& address);
std::uint16_t port_of(const FileDescriptor& socket);

}  // namespace sluice::http
