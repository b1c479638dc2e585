// SPDX-License-Identifier: Apache-2.0
//
// Which names a browser may have come by. A page of another site can have its own name resolved to our address, and would
// then be of one origin with ours (DNS rebinding): the Host header still says that name. Pure; any thread.
#pragma once

#include <string_view>

namespace sluice::http {

/// True for an address, "localhost" and `name`, each with a port or without; `name` is empty where there is none. Any bytes are
/// valid input.
bool is_ours(std::string_view host, std::string_view name);

}  // namespace sluice::http
