// SPDX-License-Identifier: Apache-2.0
#include "controlplane/page/page_server.h"

#include <utility>

#include "status_html.h"

namespace sluice::page {
namespace {

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

}  // namespace sluice::page
