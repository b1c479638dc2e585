// SPDX-License-Identifier: Apache-2.0
//
// An HTTP server of a few pages that everyone who can reach the address may read. It supports GET and HEAD
// only. The metrics and probes form one site, the status page another.
//
// A server shares the thread of a poll loop and never blocks on a peer. A silent or slow peer occupies one
// connection for a limited time, because each connection is closed with its response or at its deadline. When
// connections are scarce, the oldest connection of the source with the most connections is closed. Therefore
// a request that has arrived whole is answered without delay, regardless of other connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/function.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/polled_service.h"
#include "dataplane/base/setup_error.h"

namespace sluice::http {

struct Limits {
  std::uint32_t connections = 128;
  std::uint32_t room = 32;  ///< connections of these that are kept free for new ones
  /// Memory of one connection, for the headers of the request and of the response.
  std::size_t connection_bytes = 16u << 10;
  /// Longest lifetime of a connection, from accept to close.
  std::uint64_t deadline_ns = 10'000'000'000;
  /// Default lifetime of a content, which serves all requests for its page within this time.
  std::uint64_t look_ns = 1'000'000'000;
};

struct Content {
  unsigned status = 200;  ///< HTTP status code
  std::string text{};
};

struct Page {
  std::string path;  ///< starts with "/"
  std::string type;  ///< Content-Type
  /// Renders the page. Called by Server::poll(), so it delays the other services of the thread. An exception
  /// becomes status 503.
  Function<Content()> make;
  std::optional<std::uint64_t> keep_ns{};  ///< overrides Limits::look_ns
};

struct Site {
  std::string address;  ///< "ADDRESS:PORT" (listener.h)
  std::string what;     ///< subject of error messages, such as "the status page"
  std::string advice;   ///< remedy in error messages: the key to set and its file
  std::vector<Page> pages;
  std::vector<std::pair<std::string, std::string>> headers{};  ///< added to every response
  /// Name that requests may have in "Host" besides addresses and localhost (host_names.h). If unset, any name
  /// is accepted.
  std::optional<std::string> name{};
  std::string name_advice{};  ///< sentence for requests with another name: the key to set
};

class Server : public PolledService {
 public:
  /// Listens on the site's address. A thread that polls the server serves its connections. Throws SetupError.
  explicit Server(Site site, const Limits& limits = {});
  /// Closes all connections.
  ~Server() override;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  void prepare(PollSet& set) override;
  void poll(const PollSet& set, std::uint64_t now_ns) override;

 private:
  class State;
  const Owned<State> state_;
};

}  // namespace sluice::http
