// SPDX-License-Identifier: Apache-2.0
//
// MOUNT version 3 of an upstream server (RFC 1813, appendix I). Its replies are passed to our clients: the
// file handles in them are valid in the calls that are forwarded to it.
#pragma once

#include <memory>

#include "controlplane/mount/mount_server.h"
#include "dataplane/segment/config_block.h"

namespace sluice::mount {

/// Forwards each request over TCP. Blocks the MOUNT server's thread for at most 5 seconds. The upstream sees
/// the address of the gateway, and has to export to that.
std::unique_ptr<Exports> exports_of(const segment::UpstreamConfig& upstream);

}  // namespace sluice::mount
