// SPDX-License-Identifier: Apache-2.0
//
// Prints the declarations as a page for readers. The build writes it to deploy/json-rpc-methods.md.
#pragma once

#include <string>

namespace sluice::admin {

/// Returns the page in Markdown.
std::string reference();

}  // namespace sluice::admin
