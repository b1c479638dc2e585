// SPDX-License-Identifier: Apache-2.0
//
// One request, one answer, over the admin socket.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace sluice::ctl {

using nlohmann::json;

/// There is no control plane at the other end.
class Unreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The control plane may not be asked that by this user.
class Forbidden : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Client {
 public:
  explicit Client(std::string path) : path_(std::move(path)) {}
  /// The method's result. An error that is answered is thrown as std::runtime_error.
  json ask(const std::string& method, const json& parameters = json::object()) const;

 private:
  std::string path_;
};

}  // namespace sluice::ctl
