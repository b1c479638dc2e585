// SPDX-License-Identifier: Apache-2.0
#include "controlplane/onc_rpc/rpcbind.h"

#include <gtest/gtest.h>

#include "tests/unit/controlplane/onc_rpc/rpc_lab.h"

namespace sluice::onc_rpc {
namespace {

using namespace lab;

TEST(RpcbindProtocol, every_truncation_is_refused) {
  const Bytes registrations = encoded([](xdr::Writer& writer) {
    writer.boolean(true);
    encode(writer, Registration{.netid = "tcp", .address = "0.0.0.0.78.80", .owner = "0"});
    writer.boolean(false);
  });
  xdr::Reader whole(registrations);
  EXPECT_EQ(decode_registrations(whole)->size(), 1u);
  for (std::size_t bytes = 0; bytes < registrations.size(); ++bytes) {
    xdr::Reader reader{std::span<const std::byte>(registrations).first(bytes)};
    EXPECT_FALSE(decode_registrations(reader)) << bytes;
  }
}

TEST(RpcbindProtocol, ports_of_universal_addresses) {
  EXPECT_EQ(port_of_universal("0.0.0.0.78.80"), 20048u);
  EXPECT_EQ(port_of_universal("::.3.232"), 1000u);
  for (const char* wrong : {"", ".", "1", "78.80", "::.256.1", "::.1.-1", "::.1.x", "::..1"})
    EXPECT_EQ(port_of_universal(wrong), 0u) << wrong;
}

}  // namespace
}  // namespace sluice::onc_rpc
