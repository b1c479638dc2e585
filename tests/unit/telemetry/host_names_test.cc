// SPDX-License-Identifier: Apache-2.0
#include "telemetry/http/host_names.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::http {
namespace {

using namespace std::string_view_literals;

TEST(HostNames, an_address_localhost_and_the_configured_name_are_ours) {
  for (const std::string_view host : {"127.0.0.1", "127.0.0.1:9465", "192.0.2.7:80", "[::1]", "[::1]:9465",
                                      "[2001:db8::1]:1", "[fe80::1%eth0]:9465", "[fe80::1%25eth0]",
                                      "localhost", "LocalHost:9465", "sluice.example", "SLUICE.example:9465"})
    EXPECT_TRUE(is_ours(host, "sluice.example")) << host;
}

TEST(HostNames, a_name_that_another_site_may_have_is_not) {
  for (const std::string_view host : {""sv,
                                      ":"sv,
                                      ":9465"sv,
                                      "evil.example"sv,
                                      "evil.example:9465"sv,
                                      "127.0.0.1.evil.example"sv,
                                      "localhost.evil.example"sv,
                                      "xlocalhost"sv,
                                      "localhost."sv,
                                      "127.0.0.1:"sv,
                                      "127.0.0.1:x"sv,
                                      "127.0.0.1:123456"sv,
                                      "127.0.0.1:1:2"sv,
                                      "127.1"sv,
                                      "::1"sv,
                                      "[::1"sv,
                                      "[::1]x"sv,
                                      "[::1]:"sv,
                                      "[localhost]"sv,
                                      "[]"sv,
                                      "["sv,
                                      "]"sv,
                                      "127.0.0.1\0.evil.example"sv,
                                      "local\xc3\xb6host"sv,
                                      "sluice.example"sv,
                                      "user@localhost"sv,
                                      "localhost,localhost"sv,
                                      " localhost"sv})
    EXPECT_FALSE(is_ours(host, "")) << host;
}

}  // namespace
}  // namespace sluice::http
