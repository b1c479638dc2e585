// SPDX-License-Identifier: Apache-2.0
//
// Messages of JSON-RPC 2.0 with its error codes (section 5.1), and answers to requests of methods that may
// complete later. The codes -32000 and -32001 are Sluice's own. Answers are for the server's thread only.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "controlplane/json/json.h"
#include "dataplane/base/function.h"

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

/// Answer to a request. A method answers once, immediately or later.
class Answer {
 public:
  /// Takes the response, one line. May be called after the client has disconnected.
  using Send = Function<void(const std::string& line)>;

  /// Returns whether the client is still connected.
  using Awaited = Function<bool()>;

  /// Creates the answer to the request `id`. Without `send` the request is a notification, and its answer is
  /// discarded. Without `awaited` the client counts as connected.
  Answer(Json id, Send send, Awaited awaited = {})
      : id_(std::move(id)), send_(std::move(send)), awaited_(std::move(awaited)) {}

  /// Returns false if the answer is not sent, or its client has disconnected. Work that serves only this
  /// answer can be dropped then.
  bool awaited() const { return send_ && (!awaited_ || awaited_()); }
  void result(const Json& result) const {
    if (send_) send_(to_line({{"jsonrpc", "2.0"}, {"id", id_}, {"result", result}}));
  }
  /// Sends a result that is serialized already. Methods with long results serialize them part by part.
  void result_text(const std::string& json) const {
    if (send_) send_("{\"id\":" + to_line(id_) + ",\"jsonrpc\":\"2.0\",\"result\":" + json + "}");
  }
  /// Sends an error. `what` is a sentence that says what to do.
  void problem(const std::string& what) const {
    if (send_) send_(error_line(id_, kMethodFailed, what));
  }

 private:
  Json id_;
  Send send_;
  Awaited awaited_;
};

/// Destination of the answer to a request that is answered later.
struct Receiver {
  Receiver() = default;
  template <typename Function>
  requires std::is_invocable_v<Function, const std::string&> Receiver(Function function,
                                                                      Answer::Awaited is_awaited = {})
      : send(std::move(function)), awaited(std::move(is_awaited)) {}

  Answer::Send send;
  Answer::Awaited awaited;
};

}  // namespace sluice::admin
