// SPDX-License-Identifier: Apache-2.0
//
// Methods of the admin interface by name, each with the access that it needs, and JSON-RPC 2.0 on them. It
// knows neither sockets nor the control plane. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "dataplane/base/file_descriptor.h"

namespace sluice::admin {

/// Error of a method: a sentence for the client that says what to do.
class MethodError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Each includes the one before it.
enum class Access : std::uint8_t { None, Read, Change };

/// Takes the request's params, an object, and returns the result. Throws MethodError. An
/// nlohmann::json::exception is taken for a parameter of the wrong type.
using Method = std::function<nlohmann::json(const nlohmann::json& parameters)>;
/// The same, with the descriptor that was passed with the request (SCM_RIGHTS), if any.
using DescriptorMethod =
    std::function<nlohmann::json(const nlohmann::json& parameters, const FileDescriptor& passed)>;

class Registry {
 public:
  /// Replaces a method of the same name.
  void add(const std::string& name, Access needed, Method method);
  void add_with_descriptor(const std::string& name, Access needed, DescriptorMethod method);
  /// The response to one request, without a line end; empty for a notification. Does not throw for anything
  /// that `message` may hold.
  std::string answer(const std::string& message, Access access, const FileDescriptor& passed = {}) const;

 private:
  struct Entry {
    Access needed = Access::Change;
    DescriptorMethod method;
  };
  std::map<std::string, Entry> methods_;
};

}  // namespace sluice::admin
