// SPDX-License-Identifier: Apache-2.0
//
// The answer to a request whose method takes its time. It is given once, now or later. One thread, the server's.
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
  /// Takes the response, one line. It may be called when the client has gone.
  using Send = Function<void(const std::string& line)>;

  /// Returns whether the client is still connected.
  using Awaited = Function<bool()>;

  /// Makes the answer to a notification, which is not sent, if there is no `send`. Without `awaited` the client
  /// counts as connected.
  Answer(Json id, Send send, Awaited awaited = {})
      : id_(std::move(id)), send_(std::move(send)), awaited_(std::move(awaited)) {}

  /// Returns false if the answer is not sent, or its client is disconnected. Work for the answer alone can end then.
  bool awaited() const { return send_ && (!awaited_ || awaited_()); }
  void result(const Json& result) const {
    if (send_) send_(to_line({{"jsonrpc", "2.0"}, {"id", id_}, {"result", result}}));
  }
  /// Sends a result that is JSON text already: a long one is serialized part by part where it is made.
  void result_text(const std::string& json) const {
    if (send_) send_("{\"id\":" + to_line(id_) + ",\"jsonrpc\":\"2.0\",\"result\":" + json + "}");
  }
  /// A sentence that says what to do.
  void problem(const std::string& what) const {
    if (send_) send_(error_line(id_, kMethodFailed, what));
  }

 private:
  Json id_;
  Send send_;
  Awaited awaited_;
};

/// Takes the answer to a request that is answered later.
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
