// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "pmd/rdma.h"

namespace sluice::admin {
namespace {

using nlohmann::json;

// JSON-RPC 2.0, section 5.1.
constexpr int kParseError = -32700;
constexpr int kInvalidRequest = -32600;
constexpr int kMethodNotFound = -32601;
constexpr int kMethodFailed = -32000;

json error_answer(const json& id, int code, const std::string& message) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", code}, {"message", message}}}};
}

}  // namespace

Server::Server(const std::string& path) : path_(path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw rdma::SetupError("The admin socket's path " + path +
                           " is too long: use one of fewer than 108 bytes.");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  ::unlink(path.c_str());
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), 0660) != 0 || ::listen(listener_, 16) != 0)
    throw rdma::SetupError("Cannot listen on the admin socket " + path + " (" + std::strerror(errno) +
                           "): its folder has to exist and be writable.");
}

Server::~Server() {
  for (const auto& client : clients_) ::close(client->fd);
  ::close(listener_);
  ::unlink(path_.c_str());
}

std::string Server::answer(const std::string& message) const {
  const json request = json::parse(message, nullptr, false);
  if (request.is_discarded()) return error_answer(nullptr, kParseError, "This is no JSON.").dump();
  if (!request.is_object() || request.value("jsonrpc", "") != "2.0" || !request.contains("method") ||
      !request["method"].is_string())
    return error_answer(nullptr, kInvalidRequest, "This is no JSON-RPC 2.0 request.").dump();
  const bool notification = !request.contains("id");
  const json id = notification ? json(nullptr) : request["id"];
  const auto method = methods_.find(request["method"].get<std::string>());
  if (method == methods_.end())
    return notification ? ""
                        : error_answer(id, kMethodNotFound,
                                       "There is no method '" + request["method"].get<std::string>() + "'.")
                              .dump();
  try {
    const json result = method->second(request.value("params", json::object()));
    return notification ? "" : json{{"jsonrpc", "2.0"}, {"id", id}, {"result", result}}.dump();
  } catch (const std::exception& error) {
    return notification ? "" : error_answer(id, kMethodFailed, error.what()).dump();
  }
}

void Server::poll(int timeout_ms) {
  std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
  for (const auto& client : clients_)
    fds.push_back({client->fd, static_cast<short>(client->unsent.empty() ? POLLIN : POLLIN | POLLOUT), 0});
  if (::poll(fds.data(), fds.size(), timeout_ms) <= 0) return;
  for (std::size_t i = clients_.size(); i-- > 0;) {
    if (fds[i + 1].revents == 0 || serve(*clients_[i])) continue;
    ::close(clients_[i]->fd);
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (fds[0].revents != 0) accept_client();
}

void Server::accept_client() {
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  if (clients_.size() == kMaxClients) {
    ::close(fd);
    return;
  }
  clients_.push_back(std::make_unique<Client>(Client{fd, {}, {}}));
}

bool Server::serve(Client& client) {
  return receive(client) && send(client);
}

bool Server::receive(Client& client) {
  char buffer[4096];
  ssize_t bytes;
  while ((bytes = ::recv(client.fd, buffer, sizeof buffer, 0)) > 0) {
    client.received.append(buffer, static_cast<std::size_t>(bytes));
    std::size_t end;
    while ((end = client.received.find('\n')) != std::string::npos) {
      const std::string reply = answer(client.received.substr(0, end));
      client.received.erase(0, end + 1);
      if (!reply.empty()) client.unsent += reply + '\n';
    }
    if (client.received.size() > kMaxRequestBytes || client.unsent.size() > kMaxUnsentBytes) return false;
  }
  if (bytes == 0) return !client.unsent.empty() && send(client) && false;
  return errno == EAGAIN || errno == EINTR;
}

bool Server::send(Client& client) {
  while (!client.unsent.empty()) {
    const ssize_t bytes = ::send(client.fd, client.unsent.data(), client.unsent.size(), MSG_NOSIGNAL);
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    client.unsent.erase(0, static_cast<std::size_t>(bytes));
  }
  return true;
}

}  // namespace sluice::admin
