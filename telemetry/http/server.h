// SPDX-License-Identifier: Apache-2.0
//
// An HTTP server of a few pages that anybody who reaches the address may read: GET and HEAD, nothing else. The metrics and
// probes are one site, the status page another.
//
// A server has one thread, which waits for none of its peers. A silent or slow peer has no more than a connection for a time:
// each connection is closed with its response, or at its deadline, and where they are scarce the oldest one of the source that
// has most is closed. So a request that has arrived whole is answered at once, whatever other connections do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/function.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/setup_error.h"

namespace sluice::http {

struct Limits {
  std::uint32_t connections = 128;
  std::uint32_t room = 32;  ///< of them, kept for new ones
  /// Of one connection: the request's headers, and those of the response.
  std::size_t connection_bytes = 16u << 10;
  /// From when a connection is accepted to its end, whatever it does.
  std::uint64_t deadline_ns = 10'000'000'000;
  /// A content serves all requests for its page within this time, unless the page has another.
  std::uint64_t look_ns = 1'000'000'000;
};

struct Content {
  unsigned status = 200;  ///< HTTP status code
  std::string text{};
};

struct Page {
  std::string path;  ///< from "/"
  std::string type;  ///< Content-Type
  /// Called on the server's thread, which serves nobody meanwhile. What it throws becomes status 503.
  Function<Content()> make;
  std::optional<std::uint64_t> keep_ns{};  ///< instead of Limits::look_ns
};

struct Site {
  std::string address;  ///< "ADDRESS:PORT" (listener.h)
  std::string what;     ///< for errors: "the status page"
  std::string advice;   ///< for errors: what to set where
  std::vector<Page> pages;
  std::vector<std::pair<std::string, std::string>> headers{};  ///< of every response
  /// The name that requests may have in "Host" besides addresses and localhost (host_names.h). None: any is accepted.
  std::optional<std::string> name{};
  std::string name_advice{};  ///< sentence for requests with another name: what to set where
};

class Server {
 public:
  /// Listens on the site's address and starts the thread. Throws SetupError.
  explicit Server(Site site, const Limits& limits = {});
  /// Ends all connections.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;

 private:
  class State;
  const Owned<State> state_;
};

}  // namespace sluice::http
