// SPDX-License-Identifier: Apache-2.0
//
// The admin socket: JSON-RPC 2.0, one message per line, over a UNIX stream socket. One thread; polled.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice::admin {

inline constexpr std::size_t kMaxClients = 32;
inline constexpr std::size_t kMaxRequestBytes = 64u << 10;
inline constexpr std::size_t kMaxUnsentBytes = 8 << 20;

/// Error of a method, for the client.
class MethodError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Method = std::function<nlohmann::json(const nlohmann::json& params)>;

class Server {
 public:
  /// Makes the socket (mode 0660), and its folder if that is missing. Throws rdma::SetupError.
  explicit Server(const std::string& path);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void add(const std::string& name, Method method) { methods_[name] = std::move(method); }
  /// Waits at most `timeout_ms` for clients and serves what there is.
  void poll(int timeout_ms);

  /// The answer to one message; empty for a notification. Public for tests.
  std::string answer(const std::string& message) const;

 private:
  struct Client {
    int fd;
    std::string received;
    std::string unsent;
  };
  void accept_client();
  bool serve(Client& client);
  bool receive(Client& client);
  static bool send(Client& client);

  std::string path_;
  int listener_ = -1;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<std::string, Method> methods_;
};

}  // namespace sluice::admin
