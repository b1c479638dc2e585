// SPDX-License-Identifier: Apache-2.0
#include "telemetry/health_pages.h"

#include <civetweb.h>

#include <string>
#include <string_view>

#include "telemetry/health.h"

namespace sluice::telemetry {
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
