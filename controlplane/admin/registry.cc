// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/registry.h"

#include <algorithm>
#include <string>
#include <utility>

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/json_rpc.h"
#include "controlplane/admin/open_rpc.h"
#include "controlplane/admin/parameters.h"

namespace sluice::admin {
namespace {

std::string names_of(const Fields& parameters) {
  std::vector<std::string> names;
  for (const Field& one : parameters) names.push_back(one.name);
  return names.empty() ? "none" : join(names);
}

/// Gives parameters that are left out their defaults. Returns what is wrong with the others; empty: nothing.
std::string complete(Json& parameters, const Declaration& method) {
  for (const auto& [name, value] : parameters.items())
    if (std::none_of(method.parameters.begin(), method.parameters.end(),
                     [&name = name](const Field& one) { return one.name == name; }))
      return "'" + method.name + "' has no parameter '" + name + "'; it has: " + names_of(method.parameters) +
             ".";
  for (const Field& declared : method.parameters) {
    const Json* const given = parameters.find(declared.name);
    if (given == nullptr) {
      if (declared.by_default.is_null())
        return declared.name + " is needed: " + kind_of(declared) + ", " + declared.meaning + ".";
      parameters[declared.name] = declared.by_default;
    } else if (const std::string wrong = mismatch(declared, *given, declared.name); !wrong.empty()) {
      return wrong + ".";
    }
  }
  return "";
}

}  // namespace

void Registry::add(const Declaration& declaration, Method method) {
  add_with_descriptor(declaration,
                      [method = std::move(method)](const Json& parameters, const FileDescriptor&) {
                        return method(parameters);
                      });
}

void Registry::add_with_descriptor(const Declaration& declaration, DescriptorMethod method) {
  methods_[declaration.name] = {declaration, std::move(method), {}};
}

void Registry::add_later(const Declaration& declaration, LaterMethod method) {
  add_later_with_descriptor(
      declaration, [method = std::move(method)](const Json& parameters, const FileDescriptor&,
                                                const Answer& answer) { method(parameters, answer); });
}

void Registry::add_later_with_descriptor(const Declaration& declaration, LaterDescriptorMethod method) {
  methods_[declaration.name] = {declaration, {}, std::move(method)};
}

std::vector<Declaration> Registry::declarations() const {
  std::vector<Declaration> all;
  for (const auto& [name, entry] : methods_) all.push_back(entry.declaration);
  return all;
}

std::string Registry::answer(const std::string& message, Access access, const FileDescriptor& passed,
                             const Later& later) const {
  const std::optional<Json> parsed = Json::try_parse(message);
  if (!parsed) return error_line(nullptr, kParseError, "The message is not JSON.");
  const Json& request = *parsed;
  if (!request.is_object() || !request.contains("jsonrpc") || request["jsonrpc"] != "2.0" ||
      !request.contains("method") || !request["method"].is_string())
    return error_line(nullptr, kInvalidRequest, "The message is not a JSON-RPC 2.0 request.");
  const bool notification = !request.contains("id");
  const Json id = notification ? Json(nullptr) : request["id"];
  const auto fail = [&](int code, const std::string& what) {
    return notification ? "" : error_line(id, code, what);
  };
  if (!id.is_null() && !id.is_string() && !id.is_number())
    return error_line(nullptr, kInvalidRequest, "An id has to be a string or a number.");
  const std::string name = request["method"].get<std::string>();
  const auto method = methods_.find(name);
  if (method == methods_.end()) return fail(kMethodNotFound, "There is no method '" + name + "'.");
  if (access < method->second.declaration.needed)
    return fail(kForbidden,
                "You have read access only: ask to be a member of the group that "
                "change_group in [admin] names, or be root.");
  Json parameters = request.contains("params") ? request["params"] : Json::object();
  if (!parameters.is_object()) return fail(kInvalidParameters, "params has to be an object.");
  if (const std::string wrong = complete(parameters, method->second.declaration); !wrong.empty())
    return fail(kInvalidParameters, wrong);
  const bool answers_later = static_cast<bool>(method->second.later);
  const bool wants_answer = answers_later && !notification && later;
  const Answer::Send send = wants_answer ? later() : Answer::Send();
  if (wants_answer && !send)
    return fail(kMethodFailed, "Too many requests wait for their answers already: try again later.");
  const Answer answer(id, send);
  try {
    if (answers_later) return method->second.later(parameters, passed, answer), "";
    const Json result = method->second.method(parameters, passed);
    return notification ? "" : to_line({{"jsonrpc", "2.0"}, {"id", id}, {"result", result}});
  } catch (const std::runtime_error& error) {
    return fail(kMethodFailed, error.what());
  } catch (const std::exception& error) {
    return fail(kInternalError, error.what());
  }
}

std::uint32_t number_of(const Json& parameters, const char* name) {
  return parameters.at(name).get<std::uint32_t>();
}

MethodError no_such_connection(std::uint32_t reactor, std::uint32_t connection) {
  return MethodError("There is no connection " + std::to_string(connection) + " on reactor " +
                     std::to_string(reactor) + ": 'sluicectl connections' lists those there are.");
}

namespace {

constexpr const char* kOpenRpcVersion = "1.2.6";

Json describe(const Declaration& method) {
  Json parameters = Json::array();
  for (const Field& parameter : method.parameters)
    parameters.push_back({{"name", parameter.name},
                          {"required", parameter.by_default.is_null()},
                          {"schema", json_schema(parameter)}});
  Json errors = Json::array();
  for (const std::string& sentence : method.errors)
    errors.push_back({{"code", kMethodFailed}, {"message", sentence}});
  return {{"name", method.name},
          {"summary", method.summary},
          {"paramStructure", "by-name"},
          {"params", parameters},
          {"result", {{"name", "result"}, {"schema", json_schema(method.result)}}},
          {"errors", errors},
          {"x-access", method.needed == Access::Change ? "change" : "read"}};
}

}  // namespace

Json open_rpc(const std::vector<Declaration>& methods, const std::string& version) {
  Json described = Json::array();
  for (const Declaration& method : methods) described.push_back(describe(method));
  return {{"openrpc", kOpenRpcVersion},
          {"info", {{"title", "Sluice administration"}, {"version", version}}},
          {"methods", described}};
}

void add_discovery(Registry& registry, const std::string& version) {
  registry.add(declared("rpc.discover"),
               [&registry, version](const Json&) { return open_rpc(registry.declarations(), version); });
}

}  // namespace sluice::admin
