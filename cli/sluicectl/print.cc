// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/print.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/sluicectl/client.h"
#include "cli/sluicectl/listing.h"
#include "dataplane/base/sockets.h"

namespace sluice::ctl {
namespace {

std::string cell(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value.get<double>());
    return text;
  }
  if (value.is_number()) return value.dump();
  std::string text;
  if (value.is_array()) {
    for (const Json& part : value) text += (text.empty() ? "" : ",") + cell(part);
  } else {
    for (const auto& [key, part] : value.items()) text += (text.empty() ? "" : " ") + key + '=' + cell(part);
  }
  return text.empty() ? "-" : text;
}

bool is_table(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_object();
}

/// Columns of a table, in the order in which they first occur in a row.
struct Columns {
  std::vector<std::string>& names;
  std::vector<std::size_t>& widths;

  /// Widens the columns for `rows` and adds columns that only these rows have. Returns true if a column was
  /// added.
  bool add(const Json& rows) {
    const std::size_t before = names.size();
    for (const Json& row : rows)
      for (const auto& [key, value] : row.items())
        if (std::find(names.begin(), names.end(), key) == names.end())
          names.push_back(key), widths.push_back(key.size());
    for (const Json& row : rows)
      for (std::size_t c = 0; c < names.size(); ++c)
        widths[c] = std::max(widths[c], cell(row.value(names[c], Json())).size());
    return names.size() > before;
  }
  template <typename Cell>
  void print_line(const std::string& indent, const Cell& cell) const {
    std::string text = indent;
    for (std::size_t c = 0; c < names.size(); ++c) {
      const std::string part = cell(c);
      text += part + std::string(widths[c] - part.size() + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    std::cout << text << '\n';
  }
  void print_header(const std::string& indent) const {
    print_line(indent, [&](std::size_t c) { return names[c]; });
  }
  void print_rows(const Json& rows, const std::string& indent) const {
    for (const Json& row : rows)
      print_line(indent, [&](std::size_t c) { return cell(row.value(names[c], Json())); });
  }
};

void print_table(const Json& rows, const std::string& indent) {
  if (rows.empty()) {
    std::cout << indent << "none\n";
    return;
  }
  std::vector<std::string> names;
  std::vector<std::size_t> widths;
  Columns columns{names, widths};
  columns.add(rows);
  columns.print_header(indent);
  columns.print_rows(rows, indent);
}

void print_pairs(const Json& object, const std::string& indent) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object() && !value.empty()) {
      std::cout << indent << key << ":\n";
      print_pairs(value, indent + "  ");
    } else if (is_table(value)) {
      std::cout << indent << key << ":\n";
      print_table(value, indent + "  ");
    } else {
      std::cout << indent << key << ": " << cell(value) << '\n';
    }
  }
}

}  // namespace

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print(const Json& result, bool as_json) {
  if (as_json)
    std::cout << result.dump(2) << '\n';
  else if (result.is_array())
    print_table(result, "");
  else
    print_pairs(result, "");
}

void RowPrinter::print_table(const Json& rows) {
  Columns columns{columns_, widths_};
  if (columns.add(rows)) columns.print_header("");
  columns.print_rows(rows, "");
}

/// Writes these elements in the format of dump() for the elements of an array.
void RowPrinter::print_json(const Json& rows) {
  bool first = empty_;
  for (const Json& row : rows) {
    std::cout << (first ? "[\n  " : ",\n  ");
    for (const char character : row.dump(2)) {
      std::cout << character;
      if (character == '\n') std::cout << "  ";
    }
    first = false;
  }
}

void RowPrinter::print(const Json& rows) {
  as_json_ ? print_json(rows) : print_table(rows);
  empty_ = empty_ && rows.empty();
}

void RowPrinter::finish() const {
  if (as_json_)
    std::cout << (empty_ ? "[]\n" : "\n]\n");
  else if (empty_)
    std::cout << "none\n";
}

namespace {

constexpr int kMethodFailed = -32000;
constexpr int kForbiddenError = -32001;
constexpr int kMethodNotFound = -32601;

struct Socket {
  int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
};

std::string request_line(const std::string& method, const Json& parameters) {
  try {
    return Json{{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", parameters}}.dump() + "\n";
  } catch (const JsonError&) {
    throw std::runtime_error("An argument is not UTF-8 text. Use UTF-8.");
  }
}

}  // namespace

std::string Client::no_answer() const {
  return "The control plane at " + path_ + " did not answer. See its log.";
}

Json Client::ask(const std::string& method, const Json& parameters, int passed) const {
  const Socket socket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
  // Both timeouts are set before connect(), because the send timeout also limits its wait for a place in a
  // full backlog.
  const timeval timeout{static_cast<time_t>(timeout_.count()), 0};
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO})
    ::setsockopt(socket.fd, SOL_SOCKET, option, &timeout, sizeof timeout);
  if (socket.fd < 0 || ::connect(socket.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw Unreachable(errno == EAGAIN
                          ? no_answer()
                          : "Cannot reach the control plane at " + path_ + " (" + std::strerror(errno) +
                                "). Check whether sluice-controlplane runs. Use --socket if its "
                                "configuration names another path.");
  const std::string request = request_line(method, parameters);
  // If access is denied, the control plane sends its error response and closes its end before it receives a
  // request. A failed send is therefore not an error, and the response is read.
  for (std::size_t sent = 0; sent < request.size();) {
    const ssize_t bytes = send_with_descriptor(socket.fd, std::as_bytes(std::span(request).subspan(sent)),
                                               sent == 0 ? passed : -1);
    if (bytes <= 0) break;
    sent += static_cast<std::size_t>(bytes);
  }
  std::string answer;
  char buffer[65536];
  ssize_t bytes = 0;
  while (answer.find('\n') == std::string::npos && (bytes = ::recv(socket.fd, buffer, sizeof buffer, 0)) > 0)
    answer.append(buffer, static_cast<std::size_t>(bytes));
  const std::optional<Json> parsed = Json::try_parse(answer);
  if (!parsed) throw Unreachable(no_answer());
  if (!parsed->contains("error")) return parsed->value("result", Json());
  const Json& error = parsed->at("error");
  const int code = error.value("code", 0);
  const std::string message = error.value("message", "The control plane answered with an error.");
  if (code == kForbiddenError) throw Forbidden(message);
  if (code == kMethodFailed) throw MethodFailed(message);
  if (code == kMethodNotFound) throw UnknownMethod(message);
  throw std::runtime_error(message);
}

void for_each_page(const Client& client, const std::string& list, const Json& parameters,
                   const Function<bool(const Json& rows)>& each) {
  Json from = std::uint64_t{0};
  do {
    Json asked = parameters;
    asked["from"] = from;
    Json page;
    try {
      page = client.ask(list + "_read", asked);
    } catch (const UnknownMethod&) {
      page = {{list, client.ask(list, parameters)}, {"next", nullptr}};
    }
    if (!each(page.at(list))) return;
    from = page.at("next");
  } while (!from.is_null());
}

void print_listing(const Client& client, const std::string& list, const Json& parameters, bool as_json) {
  RowPrinter printer(as_json);
  for_each_page(client, list, parameters, [&](const Json& rows) {
    printer.print(rows);
    return cli::flush_output();
  });
  printer.finish();
}

}  // namespace sluice::ctl
