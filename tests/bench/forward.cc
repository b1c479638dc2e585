// SPDX-License-Identifier: Apache-2.0
//
// Cost of the gateway: a client over loopback RDMA, the reactor with its upstream connections, and an
// upstream, compared with a direct TCP client of the same upstream. Client and reactor share a processor; the
// upstream has the other.
#include "tests/bench/bulk_upstream.h"
#include "tests/bench/delayed_upstream.h"
#include "tests/bench/gateway.h"
#include "tests/bench/idle_upstream.h"
#include "tests/bench/null_upstream.h"
#include "tests/bench/straight.h"
#include "tests/bench/straight_data.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr ForwardedShape kNullCall{};
constexpr ForwardedShape kGetAttr{ulb::kNfs3GetAttr};
constexpr ForwardedShape kRead1m{ulb::kNfs3Read, kMegabyte};
constexpr ForwardedShape kRead4m{ulb::kNfs3Read, 4 * kMegabyte};
constexpr ForwardedShape kWrite1m{ulb::kNfs3Write, kMegabyte};
constexpr ForwardedShape kWrite4k{ulb::kNfs3Write, 4096};

// --- An upstream that answers immediately

constexpr std::uint32_t kDepth = 128;
constexpr std::uint32_t kNullDepth = 16;
constexpr std::uint32_t kReadDepth = 8;

Rate through_gateway(const ForwardedShape& shape, std::uint32_t depth, double seconds) {
  pin(kGatewayCpu);
  NullUpstream upstream;
  return Gateway(upstream.port(), {}).run(shape, depth, seconds);
}
Rate without_gateway(const ForwardedShape& shape, std::uint32_t depth, double seconds) {
  pin(kGatewayCpu);
  NullUpstream upstream;
  return straight(upstream.port(), shape, depth, seconds);
}

using Run = Rate (*)(const ForwardedShape& shape, std::uint32_t depth, double seconds);

template <Run kRun>
double getattr_p50_us(double seconds) {
  return kRun(kGetAttr, 1, seconds).p50_us();
}
template <Run kRun, std::uint32_t kCalls>
double getattr_per_second(double seconds) {
  return kRun(kGetAttr, kCalls, seconds).per_second();
}
template <Run kRun>
double null_per_second(double seconds) {
  return kRun(kNullCall, kNullDepth, seconds).per_second();
}
template <Run kRun>
double read_bytes_per_second(double seconds) {
  return kRun(kRead1m, kReadDepth, seconds).per_second() * kMegabyte;
}

// --- An upstream that copies no data

constexpr std::uint32_t kBulkDepth = 8;  ///< calls of 1 MiB; fewer longer ones move as many bytes at a time
constexpr std::uint32_t kBulkConnections = 4;

template <const ForwardedShape& kShape>
double gateway_bytes_per_second(double seconds) {
  pin(kGatewayCpu);
  BulkUpstream upstream(kShape);
  Gateway gateway(upstream.port(),
                  {.upstream_connections = kBulkConnections, .max_io_bytes = kShape.data_bytes});
  return gateway.run(kShape, kBulkDepth * kMegabyte / kShape.data_bytes, seconds).per_second() *
         kShape.data_bytes;
}
/// Returns the throughput through a relay. The upstream has the other processor, like over TCP.
template <const ForwardedShape& kShape>
double relay_bytes_per_second(double seconds) {
  pin(kGatewayCpu);
  Gateway gateway(kShape, {.max_io_bytes = kShape.data_bytes});
  return gateway.run(kShape, kBulkDepth * kMegabyte / kShape.data_bytes, seconds).per_second() *
         kShape.data_bytes;
}
template <const ForwardedShape& kShape>
double straight_bytes_per_second(double seconds) {
  pin(kGatewayCpu);
  BulkUpstream upstream(kShape);
  return StraightData(upstream.port(), kShape, kBulkDepth).run(seconds).per_second() * kShape.data_bytes;
}

// --- An upstream with a delay

constexpr std::uint64_t kDelayNs = 5'000'000;
constexpr std::uint32_t kClients = 8;
constexpr std::uint32_t kCallsOfClient = 64;

double gateway_delayed_per_second(double seconds) {
  pin(kGatewayCpu);
  DelayedUpstream upstream(kWrite4k, kDelayNs);
  Gateway gateway(upstream.port(), {.clients = kClients, .upstream_connections = 4});
  return gateway.run(kWrite4k, kCallsOfClient, seconds).per_second();
}
double straight_delayed_per_second(double seconds) {
  pin(kGatewayCpu);
  DelayedUpstream upstream(kWrite4k, kDelayNs);
  return StraightData(upstream.port(), kWrite4k, kClients * kCallsOfClient).run(seconds).per_second();
}

template <std::uint32_t kClientPlaces>
double longest_turn_of_idle_us(double seconds) {
  pin(kGatewayCpu);
  return longest_turn_us(kClientPlaces, seconds);
}

constexpr Side kSides[] = {
    {"gateway_p50_us", getattr_p50_us<through_gateway>},
    {"straight_p50_us", getattr_p50_us<without_gateway>},
    {"gateway_alone", getattr_per_second<through_gateway, 1>},
    {"straight_alone", getattr_per_second<without_gateway, 1>},
    {"gateway_null", null_per_second<through_gateway>},
    {"straight_null", null_per_second<without_gateway>},
    {"gateway", getattr_per_second<through_gateway, kDepth>},
    {"straight", getattr_per_second<without_gateway, kDepth>},
    {"gateway_read", read_bytes_per_second<through_gateway>},
    {"straight_read", read_bytes_per_second<without_gateway>},
    {"gateway_read1m", gateway_bytes_per_second<kRead1m>},
    {"gateway_read4m", gateway_bytes_per_second<kRead4m>},
    {"relay_read1m", relay_bytes_per_second<kRead1m>},
    {"relay_read4m", relay_bytes_per_second<kRead4m>},
    {"straight_read1m", straight_bytes_per_second<kRead1m>},
    {"gateway_write1m", gateway_bytes_per_second<kWrite1m>},
    {"straight_write1m", straight_bytes_per_second<kWrite1m>},
    {"gateway_write4k_5ms", gateway_delayed_per_second},
    {"straight_write4k_5ms", straight_delayed_per_second},
    {"longest_turn_us_10k", longest_turn_of_idle_us<10'000>},
    {"longest_turn_us_64", longest_turn_of_idle_us<64>},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
