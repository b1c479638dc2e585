// SPDX-License-Identifier: Apache-2.0
//
// MOUNT version 3 of an upstream server (RFC 1813, appendix I), for clients that ask here. Its answers pass
// through: the file handles that it gives are those of the calls that are forwarded to it.
#pragma once

#include <memory>

#include "controlplane/mount/mount_server.h"
#include "dataplane/segment/config_block.h"

namespace sluice::mount {

/// Asks over TCP, on MOUNT's thread, and gives up after some seconds. The upstream sees the gateway's
/// address: it has to export to that.
std::unique_ptr<Exports> exports_of(const segment::UpstreamConfig& upstream);

}  // namespace sluice::mount
