// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/sluicectl/print.h"
#include "dataplane/base/descriptor_message.h"

namespace sluice::ctl {
namespace {

constexpr int kForbidden = -32001;
constexpr timeval kTimeout{30, 0};

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
    throw std::runtime_error("An argument is not UTF-8 text: write it as UTF-8.");
  }
}

}  // namespace

Json Client::ask(const std::string& method, const Json& parameters, int passed) const {
  const Socket socket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
  if (socket.fd < 0 || ::connect(socket.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw Unreachable(
        "Cannot reach the control plane at " + path_ + " (" + std::strerror(errno) +
        "): is sluice-controlplane running? Use --socket if its configuration names another path.");
  ::setsockopt(socket.fd, SOL_SOCKET, SO_RCVTIMEO, &kTimeout, sizeof kTimeout);
  const std::string request = request_line(method, parameters);
  // Without access, the error response comes, and the other end is closed, before the request is sent.
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
  if (!parsed) throw Unreachable("The control plane at " + path_ + " did not answer: see its log.");
  if (!parsed->contains("error")) return parsed->value("result", Json());
  const Json& error = parsed->at("error");
  const std::string message = error.value("message", "The control plane answered with an error.");
  if (error.value("code", 0) == kForbidden) throw Forbidden(message);
  throw std::runtime_error(message);
}

namespace {

std::string text_of(const Json& value) {
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
  for (const auto& [key, part] : value.items()) {
    if (!text.empty()) text += value.is_array() ? "," : " ";
    text += value.is_array() ? text_of(part) : key + '=' + text_of(part);
  }
  return text.empty() ? "-" : text;
}

bool is_table(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_object();
}

void print_table(const Json& rows, const std::string& indent) {
  if (rows.empty()) {
    std::cout << indent << "none\n";
    return;
  }
  std::vector<std::string> columns;
  std::vector<std::size_t> widths;
  for (const Json& row : rows)
    for (const auto& [key, value] : row.items())
      if (std::find(columns.begin(), columns.end(), key) == columns.end())
        columns.push_back(key), widths.push_back(key.size());
  for (const Json& row : rows)
    for (std::size_t c = 0; c < columns.size(); ++c)
      widths[c] = std::max(widths[c], text_of(row.value(columns[c], Json())).size());
  const auto line = [&](auto&& cell) {
    std::string text = indent;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::string part = cell(c);
      text += part + std::string(widths[c] - part.size() + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    std::cout << text << '\n';
  };
  line([&](std::size_t c) { return columns[c]; });
  for (const Json& row : rows) line([&](std::size_t c) { return text_of(row.value(columns[c], Json())); });
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
      std::cout << indent << key << ": " << text_of(value) << '\n';
    }
  }
}

}  // namespace

void print(const Json& result, bool as_json) {
  if (as_json)
    std::cout << result.dump(2) << '\n';
  else if (result.is_array())
    print_table(result, "");
  else
    print_pairs(result, "");
}

}  // namespace sluice::ctl
