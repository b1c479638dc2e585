// SPDX-License-Identifier: Apache-2.0
//
// The status page: its contents, as JSON, and its HTTP server. Status reads the segment as the exporter
// does and the journal as a sink does, so the control plane's loop does no work for the page and is never
// blocked by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>

#include "controlplane/events/journal.h"
#include "controlplane/json/json.h"
#include "dataplane/base/function.h"
#include "dataplane/segment/segment.h"
#include "telemetry/http/server.h"

namespace sluice::page {

/// Number of most recent events on the page.
inline constexpr std::size_t kEventsShown = 50;

/// Contents of the page. A Status is used by one thread, which can be any.
class Status {
 public:
  /// `layout` and `journal` outlive this object.
  Status(const segment::Layout& layout, events::Journal& journal) : layout_(layout), journal_(journal) {}

  /// Renders the status as one JSON object without a line end. Bytes that are not UTF-8 are replaced.
  std::string render();

 private:
  void read_events();

  const segment::Layout& layout_;
  events::Journal& journal_;
  std::uint64_t next_ = 1;  ///< sequence number of the next event to read
  std::list<Json> events_;
};

/// Server of the page: "/" serves the page (status.html) and "/status.json" the data that it shows. Threads
/// as in http::Server.
class PageServer : public http::Server {
 public:
  /// Renders the body of "/status.json". Called by poll().
  using Render = Function<std::string()>;

  /// Listens on `address`. `name` is a host name that the "Host" header of requests may contain
  /// besides addresses and localhost; empty for none. Throws SetupError.
  PageServer(const std::string& address, const std::string& name, Render render,
             const http::Limits& limits = {});
};

}  // namespace sluice::page
