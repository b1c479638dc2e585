// SPDX-License-Identifier: Apache-2.0
//
// HTTP server of the status page. "/" serves the page (status.html) and "/status.json" the data that it
// shows. Threads as in http::Server.
#pragma once

#include <string>

#include "dataplane/base/function.h"
#include "telemetry/http/server.h"

namespace sluice::page {

class PageServer : public http::Server {
 public:
  /// Renders the body of "/status.json". Called on the server's thread, one call at a time.
  using Render = Function<std::string()>;

  /// Starts the server on `address`. `name` is a host name that the "Host" header of requests may contain
  /// besides addresses and localhost; empty for none. Throws SetupError.
  PageServer(const std::string& address, const std::string& name, Render render,
             const http::Limits& limits = {});
};

}  // namespace sluice::page
