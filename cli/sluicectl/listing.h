// SPDX-License-Identifier: Apache-2.0
//
// Lists that grow with the number of connections. They are read from the control plane in pages. Functions
// block until the list is complete and throw what Client::ask() throws. Any thread.
#pragma once

#include <string>

#include "cli/sluicectl/client.h"
#include "dataplane/base/function.h"

namespace sluice::ctl {

/// Calls `each` with the rows of each page of `list`, which is "connections" or "properties", until `each`
/// returns false. A control plane of an older release has no pages, so its whole list is one page.
void for_each_page(const Client& client, const std::string& list, const Json& parameters,
                   const Function<bool(const Json& rows)>& each);

/// Prints the list page by page. With `as_json` the output is one array with the whole list.
void print_listing(const Client& client, const std::string& list, const Json& parameters, bool as_json);

}  // namespace sluice::ctl
