// SPDX-License-Identifier: Apache-2.0
#include "controlplane/page/status.h"

#include <utility>

#include "controlplane/admin/json_rpc.h"
#include "controlplane/admin/views/connections.h"
#include "controlplane/admin/views/reactors.h"
#include "controlplane/admin/views/upstreams.h"
#include "controlplane/events/sinks.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/version.h"
#include "status_html.h"

namespace sluice::page {
namespace {

/// Batch size of a read of the journal. The journal's lock is held while a batch is copied, and producers
/// wait for it.
constexpr std::size_t kEventsAtATime = 64;

double seconds(std::uint64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

Json plane(const segment::Heartbeat& beat, std::uint64_t now_ns) {
  const bool alive = segment::alive(beat, now_ns);
  const bool runs = beat.pid.load(std::memory_order_acquire) != 0;  // pairs with start_heartbeat(): its times
  return {{"alive", alive},
          {"started", segment::epoch_of(beat.owner.load()) != 0},
          {"heartbeat_age_s", runs ? seconds(segment::heartbeat_age_ns(beat, now_ns)) : 0},
          {"uptime_s", alive ? admin::seconds_since(beat.started_ns.load()) : 0}};
}

/// Lists the busiest clients (a fixed number of them) and, as "others", the sum of all other clients.
Json clients(const segment::Layout& layout) {
  Json list = Json::array();
  const auto table = layout.clients.read_copy();
  if (!table) return list;
  const auto add = [&](const std::string& client, const segment::ServedCalls& served) {
    list.push_back({{"client", client},
                    {"calls", served.calls},
                    {"time_s", seconds(served.time_ns)},
                    {"bytes_in", served.received_bytes},
                    {"bytes_out", served.sent_bytes}});
  };
  for (const segment::ShownClient& client : table->clients)
    if (client.in_use != 0) add(to_string(client.peer), client.served);
  if (table->others.calls != 0) add("others", table->others);
  return list;
}

http::Site site_of(const std::string& address, const std::string& name, PageServer::Render render) {
  return {.address = address,
          .what = "the status page",
          .advice = "Set page.address to another address and port, or to \"\" for no page.",
          .pages = {{.path = "/",
                     .type = "text/html; charset=utf-8",
                     .make = [] { return http::Content{.text = std::string(kStatusHtml)}; }},
                    {.path = "/status.json",
                     .type = "application/json",
                     .make = [render = std::move(render)] { return http::Content{.text = render()}; }}},
          .headers = {{"Content-Security-Policy", kContentSecurityPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Cross-Origin-Resource-Policy", "same-origin"},
                      {"Referrer-Policy", "no-referrer"}},
          .name = name,
          .name_advice = "The administrator can set `name` in [page] to this host's name."};
}

}  // namespace

PageServer::PageServer(const std::string& address, const std::string& name, Render render,
                       const http::Limits& limits)
    : http::Server(site_of(address, name, std::move(render)), limits) {}

void Status::read_events() {
  for (bool more = true; more;) {
    const events::Journal::Part part = journal_.read(next_, kEventsAtATime);
    for (const events::Event& event : part.events) events_.push_back(events::to_json(event));
    while (events_.size() > kEventsShown) events_.pop_front();
    next_ = part.next;
    more = part.events.size() == kEventsAtATime;
  }
}

std::string Status::render() {
  read_events();
  const std::uint64_t now = segment::monotonic_ns();
  Json shown = {
      {"version", kVersion},
      {"time_s", seconds(now)},
      {"control_plane", plane(layout_.control_plane, now)},
      {"data_plane", plane(layout_.data_plane, now)},
      {"draining", layout_.draining.load() != 0},
      {"control_loop_stall_ms", seconds(layout_.recent_stall_ns.load(std::memory_order_relaxed)) * 1000},
      {"clients", clients(layout_)},
      {"exports", admin::exports(layout_)},
      {"events", Json::array()}};
  for (const Json& event : events_) shown["events"].push_back(event);
  const auto config = layout_.config.read_copy();
  shown["configuration"] = {{"generation", config ? config->generation : 0},
                            {"applied", layout_.generation_applied.load()}};
  shown["connections"] = config ? admin::count_connections(layout_, *config) : 0;
  shown["reactors"] = config ? admin::reactors(layout_, *config) : Json::array();
  shown["upstreams"] = config ? admin::upstreams(layout_, *config) : Json::array();
  return admin::to_line(shown);
}

}  // namespace sluice::page
