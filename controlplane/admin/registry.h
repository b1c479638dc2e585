// SPDX-License-Identifier: Apache-2.0
//
// Methods of the admin interface by name, each as it is declared, and JSON-RPC 2.0 on them. It knows neither sockets nor
// the control plane. One thread.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "controlplane/admin/answer.h"
#include "controlplane/admin/declaration.h"
#include "controlplane/json/json.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/function.h"

namespace sluice::admin {

/// Error of a method: a sentence for the client that says what to do.
class MethodError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Takes the request's params, which are as they are declared: all are there, those that the client has left out with their
/// defaults. Returns the result. Throws MethodError.
using Method = Function<Json(const Json& parameters)>;
/// The same, with the descriptor that was passed with the request (SCM_RIGHTS), if any.
using DescriptorMethod = Function<Json(const Json& parameters, const FileDescriptor& passed)>;

/// The same for what takes its time: it does not wait, and answers later.
using LaterMethod = Function<void(const Json& parameters, const Answer& answer)>;
/// A LaterMethod that also takes the descriptor that was passed with the request, if any. It duplicates what it needs later.
using LaterDescriptorMethod =
    Function<void(const Json& parameters, const FileDescriptor& passed, const Answer& answer)>;

class Registry {
 public:
  /// Called before the execution of a request that is answered later. Returns the receiver of the response. If that
  /// is empty, the request is not executed, and the caller repeats it later.
  using Later = Function<Receiver()>;

  /// Replaces a method of the same name.
  void add(const Declaration& declaration, Method method);
  void add_with_descriptor(const Declaration& declaration, DescriptorMethod method);
  void add_later(const Declaration& declaration, LaterMethod method);
  void add_later_with_descriptor(const Declaration& declaration, LaterDescriptorMethod method);
  /// Of all methods, by name.
  std::vector<Declaration> declarations() const;
  /// The response to one request, without a line end; empty for a notification, and for what is answered later. Does not
  /// throw for anything that `message` may hold.
  std::string answer(const std::string& message, Access access, const FileDescriptor& passed = {},
                     const Later& later = {}) const;

 private:
  struct Entry {
    Declaration declaration;
    DescriptorMethod method;
    LaterDescriptorMethod later;  ///< instead of it
  };
  std::map<std::string, Entry> methods_;
};

}  // namespace sluice::admin
