// SPDX-License-Identifier: Apache-2.0
//
// One request over the admin socket. Blocks for up to 30 seconds for each of: connection, request, response. Any thread.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

#include "controlplane/json/json.h"

namespace sluice::ctl {

/// No control plane answers at the socket.
class Unreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// This user lacks the access that the method needs.
class Forbidden : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The method has failed, as when there is no connection of the number that was given.
class MethodFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The control plane has no such method: it is of an older release.
class UnknownMethod : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Client {
 public:
  explicit Client(std::string path, std::chrono::seconds timeout = std::chrono::seconds(30))
      : path_(std::move(path)), timeout_(timeout) {}
  /// The method's result. An error response is thrown:
  /// Forbidden, MethodFailed, UnknownMethod, or std::runtime_error with its message. Throws Unreachable.
  /// `passed` is a descriptor that goes with the request (SCM_RIGHTS), which stays the caller's; negative: none.
  Json ask(const std::string& method, const Json& parameters = Json::object(), int passed = -1) const;

 private:
  std::string no_answer() const;

  std::string path_;
  std::chrono::seconds timeout_;
};

}  // namespace sluice::ctl
