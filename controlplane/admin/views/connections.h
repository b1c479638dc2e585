// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl connections' and 'sluicectl properties'. Reads the segment. The control plane's thread, except
// for count_connections(), which any thread may call.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/admin/pace.h"
#include "controlplane/admin/views/pages.h"
#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Filter of the connections to list. An empty string matches every connection.
struct ConnectionFilter {
  std::string peer;
  std::string client_class;
};

/// Returns the connections from position `from` on (pages.h) that match the filter, at most `most` of them.
Page connections(const segment::Layout& layout, const config::Config& config, const ConnectionFilter& filter,
                 std::uint64_t from, std::uint32_t most, Pace& pace);
/// Returns all details of one connection. Throws MethodError if there is no such connection.
Json show_connection(const segment::Layout& layout, const config::Config& config, std::uint32_t reactor,
                     std::uint32_t number);
/// Returns the transport properties of version 2 connections from position `from` on, of both sides.
Page connection_properties(const segment::Layout& layout, const segment::ConfigBlock& config,
                           std::uint64_t from, std::uint32_t most, Pace& pace);
/// Returns the sum of the connection counts that the reactors publish.
std::uint32_t count_connections(const segment::Layout& layout, const segment::ConfigBlock& config);

}  // namespace sluice::admin
