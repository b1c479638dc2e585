// SPDX-License-Identifier: Apache-2.0
//
// The status page over HTTP: "/" is the page (status.html), "/status.json" what it shows. Threads: as http::Server.
#pragma once

#include <string>

#include "dataplane/base/function.h"
#include "telemetry/http/server.h"

namespace sluice::page {

class PageServer : public http::Server {
 public:
  /// Makes the text of "/status.json", in JSON. Called on the server's thread, where nothing else happens meanwhile.
  using Look = Function<std::string()>;

  /// Starts the server on `address`. `name` is a host name that requests may have in "Host" besides addresses and localhost;
  /// empty: none. Throws SetupError.
  PageServer(const std::string& address, const std::string& name, Look look, const http::Limits& limits = {});
};

}  // namespace sluice::page
