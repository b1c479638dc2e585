// SPDX-License-Identifier: Apache-2.0
//
// Answer to a request of a method that may complete later. A method answers once, immediately or later. The
// server's thread only.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "controlplane/admin/json_rpc.h"
#include "controlplane/json/json.h"
#include "dataplane/base/function.h"

namespace sluice::admin {

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
