// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/registry.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/json_rpc.h"
#include "controlplane/admin/server.h"
#include "controlplane/events/kinds.h"
#include "dataplane/base/invariant.h"

namespace sluice::admin {
namespace {

std::string names_of(const Fields& parameters) {
  std::vector<std::string> names;
  for (const Field& one : parameters) names.push_back(one.name);
  return names.empty() ? "none" : join(names);
}

/// Sets parameters that were left out to their defaults. Returns an error message if another parameter is
/// invalid or missing, else an empty string.
std::string complete(Json& parameters, const Declaration& method) {
  for (const auto& [name, value] : parameters.items())
    if (std::none_of(method.parameters.begin(), method.parameters.end(),
                     [&name = name](const Field& one) { return one.name == name; }))
      return "'" + method.name + "' has no parameter '" + name +
             "'. Its parameters are: " + names_of(method.parameters) + ".";
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
  static_cast<void>(SLUICE_INVARIANT(owner_.is_caller(), object_owner));
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
                "You have only read access. Become a member of the group that change_group in [admin] names, "
                "or use root.");
  Json parameters = request.contains("params") ? request["params"] : Json::object();
  if (!parameters.is_object()) return fail(kInvalidParameters, "params has to be an object.");
  if (const std::string wrong = complete(parameters, method->second.declaration); !wrong.empty())
    return fail(kInvalidParameters, wrong);
  const bool answers_later = static_cast<bool>(method->second.later);
  const bool wants_answer = answers_later && !notification && later;
  const Receiver receiver = wants_answer ? later() : Receiver();
  if (wants_answer && !receiver.send) return "";
  const Answer answer(id, receiver.send, receiver.awaited);
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
                     std::to_string(reactor) + ". 'sluicectl connections' lists the connections.");
}

namespace {

Json schemas_of(const Declaration& method) {
  Json parameters = Json::array();
  for (const Field& parameter : method.parameters)
    parameters.push_back({{"name", parameter.name},
                          {"required", parameter.by_default.is_null()},
                          {"schema", json_schema(parameter)}});
  return {{"name", method.name}, {"params", parameters}, {"result", json_schema(method.result)}};
}

}  // namespace

std::string schemas() {
  Json methods = Json::array();
  for (const Chapter& chapter : chapters())
    for (const Declaration& method : chapter.methods) methods.push_back(schemas_of(method));
  return methods.dump() + '\n';
}

namespace {

constexpr std::size_t kKib = 1024;
constexpr std::size_t kMib = 1024 * kKib;

constexpr const char* kHead =
    R"(# Methods of the JSON-RPC interface

`sluice-reference methods` prints this page from `controlplane/admin/declarations/` when Sluice is built. The page json-rpc.md describes the
protocol, the access rules and the errors. Integers are not negative and may need 64 bits. "Not always" marks a field that some results
lack.

)";

void write_limits(std::ostream& out) {
  out << "## Limits\n\n"
      << "- A request has at most " << kMaxRequestBytes / kKib << " KiB. A client that has more than "
      << kMaxUnsentBytes / kMib << " MiB of unread responses is disconnected, and logged.\n"
      << "- There are at most " << kMaxClients
      << " clients at a time. A new client replaces the one that has been idle longest, or has not read its "
         "response for "
      << kMaxUnreadNs / 1'000'000'000 << " seconds.\n"
      << "- At most " << kMaxWaitingClients << " clients wait for slow answers.\n"
      << "- An iteration of the control plane's loop answers at most " << kRequestsPerPoll
      << " requests. It describes at most " << kDescribedPerIteration
      << " connections for requests that are answered immediately, and as many for lists that are built over "
         "several iterations.\n"
      << "- `connections` and `properties` have at most " << kMaxListedAtOnce
      << " rows. Longer lists are read in pages, with `connections_read` and `properties_read`.\n\n";
}

/// Returns the name of the field's type in JSON.
std::string type_of(const Field& field) {
  switch (field.type) {
    case Type::Any:
      return "any";
    case Type::Scalar:
      return "boolean, number or string";
    case Type::Boolean:
      return "boolean";
    case Type::Unsigned:
      return "integer";
    case Type::Number:
      return "number";
    case Type::Text:
      return field.choices.empty() ? "string" : "string: " + join(field.choices);
    case Type::Object:
      return "object";
    case Type::Map:
      return "object by name: " + type_of(field.parts.at(0));
    case Type::List:
      return field.parts.at(0).type == Type::Object ? "array of objects"
                                                    : "array: " + type_of(field.parts.at(0));
  }
  return "?";
}

std::string type_in_result(const Field& field) {
  std::string type = type_of(field);
  if (field.nullable) type += ", or null";
  if (field.optional) type += ", not always";
  return type;
}

std::string type_of_parameter(const Field& field) {
  return type_of(field) + (field.most == Field::kNoLimit ? "" : ", at most " + std::to_string(field.most));
}

void write_parameters(std::ostream& out, const Declaration& method) {
  if (method.parameters.empty()) {
    out << "No parameters.\n\n";
    return;
  }
  out << "| parameter | type | default | meaning |\n|---|---|---|---|\n";
  for (const Field& one : method.parameters)
    out << "| `" << one.name << "` | " << type_of_parameter(one) << " | "
        << (one.by_default.is_null() ? "required" : '`' + one.by_default.dump() + '`') << " | " << one.meaning
        << " |\n";
  out << '\n';
}

void write_fields(std::ostream& out, const Field& of, const std::string& path) {
  for (const Field& field : of.parts) {
    const std::string name = path + field.name;
    out << "| `" << name << "` | " << type_in_result(field) << " | " << field.meaning << " |\n";
    if (field.type == Type::Object) write_fields(out, field, name + '.');
    if (field.type == Type::List) write_fields(out, field.parts.at(0), name + "[].");
  }
}

void write_result(std::ostream& out, const Field& result) {
  const bool rows = result.type == Type::List;
  const Field& of = rows ? result.parts.at(0) : result;
  out << "The result is " << (rows ? "an array of objects" : "an object")
      << (of.empty_or_whole ? ", or empty" : "");
  if (of.parts.empty()) {
    out << " without fields.\n\n";
    return;
  }
  out << ":\n\n| field | type | meaning |\n|---|---|---|\n";
  write_fields(out, of, "");
  out << '\n';
}

std::string anchor_of(std::string name) {
  std::erase(name, '.');
  return name;
}

void write_event(std::ostream& out, const auto& event) {
  out << "| `" << event.kKind.name << "` | "
      << events::kSeverities[static_cast<std::size_t>(event.kKind.severity)] << " | " << event.kKind.sentence
      << " | ";
  const char* between = "";
  event.each([&](const char* name, const auto&, const char* meaning) {
    out << between << '`' << name << "`: " << meaning;
    between = "; ";
  });
  out << " |\n";
}

/// Describes the events, which files of JSON lines and journald contain as well.
void write_events(std::ostream& out) {
  out << "## Events\n\n`events_read` returns these events. Fields are strings, numbers or booleans.\n\n"
         "| event | severity | what has happened | fields |\n|---|---|---|---|\n";
  std::apply([&](const auto&... event) { (write_event(out, event), ...); }, events::AllKinds{});
}

void write_method(std::ostream& out, const Declaration& method) {
  out << "### " << method.name << "\n\n"
      << method.summary << " Access: " << (method.needed == Access::Change ? "change" : "read") << ".\n\n";
  write_parameters(out, method);
  write_result(out, method.result);
  if (method.errors.empty()) return;
  out << "It fails with " << kMethodFailed << " when:\n\n";
  for (const std::string& error : method.errors) out << "- " << error << '\n';
  out << '\n';
}

}  // namespace

std::string reference() {
  std::ostringstream out;
  out << kHead;
  write_limits(out);
  out << "## Methods\n\n| method | access | what it does |\n|---|---|---|\n";
  for (const Chapter& chapter : chapters())
    for (const Declaration& method : chapter.methods)
      out << "| [" << method.name << "](#" << anchor_of(method.name) << ") | "
          << (method.needed == Access::Change ? "change" : "read") << " | " << method.summary << " |\n";
  out << '\n';
  for (const Chapter& chapter : chapters()) {
    out << "## " << chapter.title << "\n\n";
    for (const Declaration& method : chapter.methods) write_method(out, method);
  }
  write_events(out);
  return out.str();
}

}  // namespace sluice::admin
