// SPDX-License-Identifier: Apache-2.0
//
// Host names under which a browser may address this server. A page of another site can have its own name
// resolved to our address and would then share an origin with our pages (DNS rebinding), but the Host header
// still contains that site's name. Pure; any thread.
#pragma once

#include <string_view>

namespace sluice::http {

/// Returns true for an address, for "localhost" and for `name`, each with or without a port. An empty `name`
/// matches nothing. Accepts any bytes.
bool is_ours(std::string_view host, std::string_view name);

}  // namespace sluice::http
