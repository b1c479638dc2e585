// SPDX-License-Identifier: Apache-2.0
//
// A client of the admin socket that lists all connections page by page. It never blocks, so it shares a
// thread with the control plane that answers it. One thread.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "controlplane/json/json.h"
#include "dataplane/base/file_descriptor.h"

namespace sluice::bench {

class ListingClient {
 public:
  /// Connects to the admin socket `path` and sends the first request. Throws std::runtime_error.
  explicit ListingClient(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy_n(path.begin(), std::min(path.size(), sizeof address.sun_path - 1), address.sun_path);
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("The admin socket " + path + " accepts no connection.");
    request();
  }

  /// Receives all available data. Returns false once the listing is complete or was refused.
  bool advance() {
    std::array<char, 65536> buffer;
    ssize_t bytes = 0;
    while ((bytes = ::recv(socket_.get(), buffer.data(), buffer.size(), 0)) > 0)
      answer_.append(buffer.data(), static_cast<std::size_t>(bytes));
    if (bytes == 0) return false;
    if (answer_.empty() || answer_.back() != '\n') return true;
    const Json answer = Json::parse(answer_);
    answer_.clear();
    if (!answer.contains("result")) return false;
    const Json& page = answer.at("result");
    listed_ += page.at("connections").size();
    complete_ = page.at("next").is_null();
    from_ = page.at("next");
    if (!complete_) request();
    return !complete_;
  }

  bool complete() const { return complete_; }
  std::size_t listed() const { return listed_; }

 private:
  void request() {
    const Json request = {
        {"jsonrpc", "2.0"}, {"id", 1}, {"method", "connections_read"}, {"params", {{"from", from_}}}};
    const std::string line = request.dump() + '\n';
    ::send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL);
  }

  FileDescriptor socket_;
  std::string answer_;
  Json from_ = std::uint64_t{0};
  std::size_t listed_ = 0;
  bool complete_ = false;
};

}  // namespace sluice::bench
