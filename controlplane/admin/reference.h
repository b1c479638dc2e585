// SPDX-License-Identifier: Apache-2.0
//
// The declarations as a page for readers: deploy/docs/json-rpc.md.
#pragma once

#include <string>

namespace sluice::admin {

/// Markdown.
std::string reference();

}  // namespace sluice::admin
