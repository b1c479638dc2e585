// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "cli/output.h"
#include "cli/sluicectl/listing.h"
#include "cli/sluicectl/print.h"
#include "dataplane/base/sockets.h"

namespace sluice::ctl {
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
