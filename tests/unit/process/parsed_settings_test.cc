// SPDX-License-Identifier: Apache-2.0
//
// Keys of a configuration file, as the control plane parses them, in the settings of the data plane.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "controlplane/config/config.h"
#include "dataplane/gateway/rdma_upstream/relay.h"
#include "dataplane/gateway/tcp_clients/reverse_gateway.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/process/settings.h"
#include "dataplane/reactor/config.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/memory/memory_service.h"
#include "dataplane/tcp/record_stream.h"

namespace sluice::process {
namespace {

/// The loopback driver reaches no other host.
constexpr const char* kDriver = "[device]\ndriver = \"verbs\"\n";
constexpr const char* kReverse = "[reverse]\nenabled = true\nserver = \"::1\"\n";

std::string upstream(const char* transport) {
  return std::string("[[upstream]]\nname = \"u\"\naddress = \"::1\"\nprograms = [\"nfs3\"]\ntransport = \"") +
         transport + "\"\n";
}

/// Checks the size of one READ or WRITE wherever the data plane sets it from a file that begins with `first`.
void expect_sizes(const std::string& first, std::uint32_t bytes) {
  SCOPED_TRACE(first);
  const auto block = [&](const std::string& more) {
    return config::parse(first + kDriver + more, "f").block;
  };
  EXPECT_EQ(memory_config(block("")).max_io_bytes, bytes);
  EXPECT_EQ(engine_config(block("")).call_buffer_bytes, tcp::record_bytes(bytes));
  EXPECT_EQ(reverse_gateway_config(block(kReverse)).server_side.max_io_bytes, bytes);

  const auto segment = segment::Segment::in_memory();
  segment::ReactorArea& area = segment->layout().reactors[0];
  const segment::SharedUpstreamAddresses& addresses = segment->layout().upstream_addresses;
  const segment::ConfigBlock over_tcp = block(upstream("tcp"));
  const auto caches = request_caches(over_tcp);
  EXPECT_EQ(upstreams_config(over_tcp, area, addresses, caches).upstreams.at(0).config.replies.max_io_bytes,
            bytes);
  EXPECT_EQ(engine_config(over_tcp).reply_buffer_bytes, tcp::record_bytes(bytes));
  EXPECT_EQ(relay_config(block(upstream("rdma")), addresses).server_side.max_io_bytes, bytes);
}

TEST(ParsedSettings, max_io_mib_is_the_size_of_one_read_or_write_everywhere) {
  expect_sizes("", 1u << 20);
  for (const std::uint32_t mib : {1u, 2u, 4u})
    expect_sizes("[transport]\nmax_io_mib = " + std::to_string(mib) + "\n", mib << 20);
}

}  // namespace
}  // namespace sluice::process
