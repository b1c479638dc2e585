// SPDX-License-Identifier: Apache-2.0
//
// Client of the admin socket, with one request per connection. Blocks for up to 30 seconds each for
// connection, request and response. Any thread.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

#include "controlplane/json/json.h"

namespace sluice::ctl {

/// Error: no control plane responds at the socket.
class Unreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Error: this user lacks the access that the method requires.
class Forbidden : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Error: the method has failed, for example because the connection number does not exist.
class MethodFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Error: the control plane is of an older release that does not have the method.
class UnknownMethod : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Client {
 public:
  explicit Client(std::string path, std::chrono::seconds timeout = std::chrono::seconds(30))
      : path_(std::move(path)), timeout_(timeout) {}
  /// Sends a request and returns the method's result. Throws Unreachable, and for an error response
  /// Forbidden, MethodFailed, UnknownMethod, or std::runtime_error with its message. `passed` is a descriptor
  /// that is sent with the request (SCM_RIGHTS) and remains the caller's; negative means none.
  Json ask(const std::string& method, const Json& parameters = Json::object(), int passed = -1) const;

 private:
  std::string no_answer() const;

  std::string path_;
  std::chrono::seconds timeout_;
};

}  // namespace sluice::ctl
