// SPDX-License-Identifier: Apache-2.0
//
// The status page over HTTP: "/" is the page (status.html), "/status.json" what it shows. Read only: GET and HEAD of these two,
// from whoever can reach the address.
//
// One thread of its own, which waits for none of its peers. Whoever is silent, slow or many gets no more than a connection for
// a time: each is closed with its answer, or at its deadline, and where they are scarce the oldest of the source that has
// most makes room for a new one. So a reader whose request is there when it is taken in is answered at once, however many others say
// nothing, and one from another host than theirs has its time in any case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dataplane/base/setup_error.h"

namespace sluice::page {

struct Limits {
  std::uint32_t connections = 128;
  std::uint32_t room = 32;  ///< of them, kept for new ones
  /// Of one connection: the request's headers, and those of the answer.
  std::size_t connection_bytes = 16u << 10;
  /// From when a connection is taken in to its end, whatever it does.
  std::uint64_t deadline_ns = 10'000'000'000;
  /// A look serves all who ask within it.
  std::uint64_t look_ns = 1'000'000'000;
};

class PageServer {
 public:
  /// Makes the text of "/status.json", in JSON. Called on the server's thread, where nothing else happens meanwhile.
  using Look = std::function<std::string()>;

  /// Listens at once (listener.h). `name` is one that browsers may come by besides addresses and localhost, or empty. Throws
  /// SetupError.
  PageServer(const std::string& address, const std::string& name, Look look, const Limits& limits = {});
  /// Ends all connections.
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  std::uint16_t port() const;

 private:
  class State;
  const std::unique_ptr<State> state_;
};

}  // namespace sluice::page
