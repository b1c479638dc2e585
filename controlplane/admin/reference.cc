// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/reference.h"

#include <sstream>
#include <tuple>
#include <vector>

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/json_rpc.h"
#include "controlplane/admin/server.h"
#include "controlplane/events/kinds.h"

namespace sluice::admin {
namespace {

constexpr std::size_t kKib = 1024;
constexpr std::size_t kMib = 1024 * kKib;

struct Code {
  int number;
  const char* meaning;
};
constexpr Code kCodes[] = {
    {kParseError, "The line is not JSON."},
    {kInvalidRequest, "It is no request of JSON-RPC 2.0, a batch, or too long."},
    {kMethodNotFound, "There is no such method."},
    {kInvalidParameters,
     "A parameter is missing, unknown, or not what it has to be: the message says which."},
    {kInternalError, "A defect of Sluice."},
    {kMethodFailed,
     "The method has failed: the message is a sentence that says what to do. So do requests of which too "
     "many wait already."},
    {kForbidden,
     "The process may not call the method, or not use the socket, or the socket has no room for it."},
};

constexpr const char* kHead =
    R"(# The JSON-RPC interface

Made from `controlplane/admin/declarations/` by `sluice-admin-reference`; a test compares the two, and others hold every answer against
it. `sluicectl` is a client of this interface; `sluicectl --json` prints results as they are here. Names of methods, parameters and fields are
stable: a later release may have more of them, so a client ignores fields that it does not know. Sentences (messages of errors, problems, hints) are for people
and may change.

The control plane answers [JSON-RPC 2.0](https://www.jsonrpc.org/specification) on a UNIX stream socket, `socket` in `[admin]`. A request is one line, as is
its response:

    $ echo '{"jsonrpc": "2.0", "id": 1, "method": "version"}' | socat - UNIX-CONNECT:/run/sluice/admin.sock
    {"id":1,"jsonrpc":"2.0","result":{"version":"1.0.0"}}

- `params` is an object; parameters go by name. One that is not declared is refused, as is one of another type.
- A request without `id` is a notification: it is carried out and not answered.
- Batches are refused. Requests may be sent without waiting for responses, which come in the order of the requests.
- What takes its time, such as a reload, is answered when it is done; the next request of the same connection waits for it.
- Integers are not negative, and may need 64 bits. "Not always" is a field that some results lack.
- `rpc.discover` returns this page for programs, as an [OpenRPC](https://spec.open-rpc.org) document with JSON Schemas.

## Who may do what

The kernel says who has connected. Root, the control plane's user and members of `change_group` may call every method; members of `read_group` those with
"read" below, which change nothing. Others are answered with an error and disconnected.

)";

void write_limits(std::ostream& out) {
  out << "## Limits\n\n"
      << "- A request has at most " << kMaxRequestBytes / kKib << " KiB. A client that has more than "
      << kMaxUnsentBytes / kMib << " MiB of responses to read is disconnected, which the log says.\n"
      << "- There are at most " << kMaxClients
      << " clients at a time. A new one takes the place of the one that has been idle longest, or has not "
         "read its "
         "response for "
      << kMaxUnreadNs / 1'000'000'000 << " seconds.\n"
      << "- At most " << kMaxWaitingClients << " clients wait for answers that take their time.\n"
      << "- An iteration of the control plane's loop answers at most " << kRequestsPerPoll
      << " requests. It describes at most " << kDescribedPerIteration
      << " connections for requests that are answered at once, and as many for lists that are made over "
         "several "
         "iterations.\n"
      << "- `connections` and `properties` have at most " << kMaxListedAtOnce
      << " rows: longer lists are read in pages, with `connections_read` and `properties_read`.\n\n";
}

void write_errors(std::ostream& out) {
  out << "## Errors\n\n| code | meaning |\n|---|---|\n";
  for (const Code& code : kCodes) out << "| " << code.number << " | " << code.meaning << " |\n";
  out << "\nThe errors of a method below come with " << kMethodFailed << ".\n\n";
}

/// In the words of JSON.
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

/// What a file of JSON lines and journald have too.
void write_events(std::ostream& out) {
  out << "## Events\n\nWhat `events_read` returns. Fields are strings, numbers or booleans.\n\n"
         "| event | severity | what has happened | fields |\n|---|---|---|---|\n";
  std::apply([&](const auto&... event) { (write_event(out, event), ...); }, events::AllKinds{});
}

void write_method(std::ostream& out, const Declaration& method) {
  out << "### " << method.name << "\n\n"
      << method.summary << " Access: " << (method.needed == Access::Change ? "change" : "read") << ".\n\n";
  write_parameters(out, method);
  write_result(out, method.result);
  if (method.errors.empty()) return;
  out << "It fails when:\n\n";
  for (const std::string& error : method.errors) out << "- " << error << '\n';
  out << '\n';
}

}  // namespace

std::string reference() {
  std::ostringstream out;
  out << kHead;
  write_limits(out);
  write_errors(out);
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
