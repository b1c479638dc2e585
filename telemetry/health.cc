// SPDX-License-Identifier: Apache-2.0
#include "telemetry/health.h"

#include <civetweb.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "dataplane/base/small_algorithms.h"
#include "telemetry/health_pages.h"

namespace sluice::telemetry {
namespace {

constexpr const char* kTooLong = " for more than 3 s";
static_assert(segment::kHeartbeatTimeoutNs == 3'000'000'000);

}  // namespace

Health liveness(const segment::Layout& layout, std::uint64_t monotonic_now_ns) {
  if (segment::alive(layout.control_plane, monotonic_now_ns)) return {true, "alive"};
  return {false, std::string("the loop of the control plane has not come round") + kTooLong};
}

Health readiness(const segment::Layout& layout, std::uint64_t monotonic_now_ns) {
  if (layout.control_plane.pid.load() != static_cast<std::uint32_t>(::getpid()))
    return {false, "this control plane does not own the segment"};
  if (Health own = liveness(layout, monotonic_now_ns); !own.good) return own;
  if (layout.data_plane.pid.load() == 0) return {false, "there is no data plane: start sluice-dataplane"};
  if (!segment::alive(layout.data_plane, monotonic_now_ns))
    return {false, std::string("the data plane's heart has not beaten") + kTooLong};
  const auto config = layout.config.read_copy();
  if (!config) return {false, "there is no configuration"};
  for (std::uint32_t i = 0; i < smaller_of(config->reactors, segment::kMaxReactors); ++i) {
    const auto info = layout.reactors[i].info.read();
    if (!info || info->state != segment::ReactorState::Running)
      return {false, "reactor " + std::to_string(i) + " does not run"};
  }
  if (layout.draining.load() != 0) return {false, "draining: new connections are refused"};
  return {true, "ready"};
}

// --- Pages

namespace {

using Judge = Health (*)(const segment::Layout&, std::uint64_t);

thread_local const segment::Layout* layout_of_new_server = nullptr;

template <Judge judge>
int answer(mg_connection* connection, void* layout) {
  const Health health = judge(*static_cast<const segment::Layout*>(layout), segment::monotonic_ns());
  const std::string body = health.text + '\n';
  const bool head = std::string_view(mg_get_request_info(connection)->request_method) == "HEAD";
  mg_printf(connection,
            "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n"
            "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
            health.good ? "200 OK" : "503 Service Unavailable", body.size(), head ? "" : body.c_str());
  return health.good ? 200 : 503;
}

/// On the thread that starts the server, before it serves anybody.
void add_pages(const mg_context* server) {
  auto* const own = const_cast<mg_context*>(server);
  void* const layout = const_cast<segment::Layout*>(layout_of_new_server);
  mg_set_request_handler(own, "/healthz", answer<liveness>, layout);
  mg_set_request_handler(own, "/readyz", answer<readiness>, layout);
}

}  // namespace

HealthPages::HealthPages(const segment::Layout& layout) noexcept {
  layout_of_new_server = &layout;
  callbacks_.init_context = add_pages;
}

HealthPages::~HealthPages() {
  layout_of_new_server = nullptr;
}

}  // namespace sluice::telemetry
