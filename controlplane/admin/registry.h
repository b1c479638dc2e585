// SPDX-License-Identifier: Apache-2.0
//
// Registry of the methods of the admin interface, by name, and their JSON-RPC 2.0 dispatch. It checks
// requests against the declarations, from which the reference and the JSON Schemas are made. Independent of
// sockets and of the control plane. Single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "controlplane/admin/json_rpc.h"
#include "controlplane/admin/schema.h"
#include "controlplane/json/json.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/function.h"
#include "dataplane/base/thread_owner.h"

namespace sluice::admin {

/// Error of a method. Its text is a sentence that says what the client can do.
class MethodError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Takes the parameters of a request and returns the result. All declared parameters are present and valid;
/// parameters that the client has left out have their defaults. Throws MethodError.
using Method = Function<Json(const Json& parameters)>;
/// A Method that also takes the descriptor that was passed with the request (SCM_RIGHTS), if any.
using DescriptorMethod = Function<Json(const Json& parameters, const FileDescriptor& passed)>;

/// A method for long operations. It never blocks and may answer after it has returned.
using LaterMethod = Function<void(const Json& parameters, const Answer& answer)>;
/// A LaterMethod that also takes the descriptor that was passed with the request, if any. It duplicates the
/// descriptor if it needs it after returning.
using LaterDescriptorMethod =
    Function<void(const Json& parameters, const FileDescriptor& passed, const Answer& answer)>;

class Registry {
 public:
  /// Called before the execution of a request that is answered later. Returns the receiver of the response.
  /// If the receiver is empty, the request is not executed, and the caller repeats it later.
  using Later = Function<Receiver()>;

  /// Adds a method, and replaces an existing method with the same name.
  void add(const Declaration& declaration, Method method);
  void add_with_descriptor(const Declaration& declaration, DescriptorMethod method);
  void add_later(const Declaration& declaration, LaterMethod method);
  void add_later_with_descriptor(const Declaration& declaration, LaterDescriptorMethod method);
  /// Returns the declarations of all methods, ordered by name.
  std::vector<Declaration> declarations() const;
  /// Returns the response to one request, without a line end. Returns an empty string for a notification and
  /// for a request that is answered later. No content of `message` makes it throw.
  std::string answer(const std::string& message, Access access, const FileDescriptor& passed = {},
                     const Later& later = {}) const;

 private:
  struct Entry {
    Declaration declaration;
    DescriptorMethod method;
    LaterDescriptorMethod later;  ///< replaces `method` if the request is answered later
  };
  std::map<std::string, Entry> methods_;
  ThreadOwner owner_;  ///< thread that answers
};

/// Returns the number `name` of `parameters`. Its declaration limits it to 32 bits.
std::uint32_t number_of(const Json& parameters, const char* name);
/// Returns the error for parameters that name a connection that does not exist.
MethodError no_such_connection(std::uint32_t reactor, std::uint32_t connection);

/// Returns the parameters and results of all methods as JSON Schemas (draft 7), for tests and generators of
/// clients.
std::string schemas();

/// Prints the declarations as a page in Markdown. The build writes it to deploy/json-rpc-methods.md.
std::string reference();

}  // namespace sluice::admin
