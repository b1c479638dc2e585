// SPDX-License-Identifier: Apache-2.0
//
// Messages of JSON-RPC 2.0 and its error codes (section 5.1; those from -32000 on are ours).
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

/// One line without its end. Bytes that are not UTF-8 are replaced: what peers sent may be in an answer.
inline std::string to_line(const Json& message) {
  return message.dump(-1, Json::Encoding::Replaced);
}

/// An error response. `id` is null where the request's id is not known.
inline std::string error_line(const Json& id, int code, const std::string& message) {
  return to_line({{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", code}, {"message", message}}}});
}

}  // namespace sluice::admin
