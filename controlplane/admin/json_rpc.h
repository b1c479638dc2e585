// SPDX-License-Identifier: Apache-2.0
//
// Messages of JSON-RPC 2.0 and its error codes (section 5.1). The codes -32000 and -32001 are Sluice's own.
#pragma once

#include <string>

#include "controlplane/json/json.h"

namespace sluice::admin {

inline constexpr int kParseError = -32700;
inline constexpr int kInvalidRequest = -32600;
inline constexpr int kMethodNotFound = -32601;
inline constexpr int kInvalidParameters = -32602;
inline constexpr int kInternalError = -32603;
inline constexpr int kMethodFailed = -32000;
inline constexpr int kForbidden = -32001;

/// Returns the message as one line without a line end. Replaces bytes that are not UTF-8, because an answer
/// may contain text that peers have sent.
inline std::string to_line(const Json& message) {
  return message.dump(-1, Json::Encoding::Replaced);
}

/// Returns an error response. `id` is null if the id of the request is unknown.
inline std::string error_line(const Json& id, int code, const std::string& message) {
  return to_line({{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", code}, {"message", message}}}});
}

}  // namespace sluice::admin
