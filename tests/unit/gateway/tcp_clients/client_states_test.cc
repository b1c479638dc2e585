// SPDX-License-Identifier: Apache-2.0
//
// Transition table of TCP clients of the reverse gateway.
#include "dataplane/gateway/tcp_clients/tcp_client.h"
#include "tests/unit/base/transition_checks.h"

namespace sluice::tcp_clients_test {
namespace {

using tcp_clients::kTcpClientTransitions;
using enum tcp_clients::TcpClient::State;

TEST(TcpClientStates, every_state_is_reached_and_left) {
  expect_rest_is_left_and_reached(kTcpClientTransitions);
}

TEST(TcpClientStates, a_connection_ends_only_through_closing) {
  for (const auto state : {Free, Open, Draining, Resetting})
    EXPECT_FALSE(kTcpClientTransitions.allows(state, Free)) << static_cast<int>(state);
  EXPECT_TRUE(kTcpClientTransitions.allows(Closing, Free));
}

TEST(TcpClientStates, a_client_that_takes_no_calls_takes_none_again) {
  for (const auto state : {Draining, Resetting, Closing})
    EXPECT_FALSE(kTcpClientTransitions.allows(state, Open)) << static_cast<int>(state);
}

}  // namespace
}  // namespace sluice::tcp_clients_test
