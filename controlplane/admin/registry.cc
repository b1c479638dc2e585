// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/registry.h"

#include <utility>

#include "controlplane/admin/json_rpc.h"

namespace sluice::admin {

using nlohmann::json;

void Registry::add(const std::string& name, Access needed, Method method) {
  add_with_descriptor(name, needed,
                      [method = std::move(method)](const json& parameters, const FileDescriptor&) {
                        return method(parameters);
                      });
}

void Registry::add_with_descriptor(const std::string& name, Access needed, DescriptorMethod method) {
  methods_[name] = {needed, std::move(method), {}};
}

void Registry::add_later(const std::string& name, Access needed, LaterMethod method) {
  methods_[name] = {needed, {}, std::move(method)};
}

std::string Registry::answer(const std::string& message, Access access, const FileDescriptor& passed,
                             const Later& later) const {
  const json request = json::parse(message, nullptr, false);
  if (request.is_discarded()) return error_line(nullptr, kParseError, "The message is not JSON.");
  if (!request.is_object() || !request.contains("jsonrpc") || request["jsonrpc"] != "2.0" ||
      !request.contains("method") || !request["method"].is_string())
    return error_line(nullptr, kInvalidRequest, "The message is not a JSON-RPC 2.0 request.");
  const bool notification = !request.contains("id");
  const json id = notification ? json(nullptr) : request["id"];
  const auto fail = [&](int code, const std::string& what) {
    return notification ? "" : error_line(id, code, what);
  };
  if (!id.is_null() && !id.is_string() && !id.is_number())
    return error_line(nullptr, kInvalidRequest, "An id has to be a string or a number.");
  const std::string name = request["method"].get<std::string>();
  const auto method = methods_.find(name);
  if (method == methods_.end()) return fail(kMethodNotFound, "There is no method '" + name + "'.");
  if (access < method->second.needed)
    return fail(kForbidden,
                "You have read access only: ask to be a member of the group that "
                "change_group in [admin] names, or be root.");
  const json parameters = request.contains("params") ? request["params"] : json::object();
  if (!parameters.is_object()) return fail(kInvalidParameters, "params has to be an object.");
  const bool answers_later = static_cast<bool>(method->second.later);
  const bool wants_answer = answers_later && !notification && later;
  const Answer::Send send = wants_answer ? later() : Answer::Send();
  if (wants_answer && !send)
    return fail(kMethodFailed, "Too many requests wait for their answers already: try again later.");
  const Answer answer(id, send);
  try {
    if (answers_later) return method->second.later(parameters, answer), "";
    const json result = method->second.method(parameters, passed);
    return notification ? "" : to_line({{"jsonrpc", "2.0"}, {"id", id}, {"result", result}});
  } catch (const json::exception&) {
    return fail(kInvalidParameters, "A parameter of '" + name + "' is of the wrong type.");
  } catch (const std::runtime_error& error) {
    return fail(kMethodFailed, error.what());
  } catch (const std::exception& error) {
    return fail(kInternalError, error.what());
  }
}

}  // namespace sluice::admin
