// SPDX-License-Identifier: Apache-2.0
//
// Configuration of one upstream, and the state that its parts share on one reactor: counters, time,
// addresses, XIDs, and the number of each client's calls that were never sent. Only the owning reactor may
// call; only the constructor allocates.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/probes.h"
#include "dataplane/base/siphash.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/addresses.h"
#include "dataplane/gateway/tcp_upstream/credit_limits.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/gateway/tcp_upstream/iteration_clock.h"
#include "dataplane/gateway/tcp_upstream/reply_memory.h"
#include "dataplane/gateway/tcp_upstream/xid_table.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/tcp/uring.h"
#include "pmd/device.h"

namespace sluice::tcp_upstream {

/// Number of dedicated connections that may still be closing while their successors are open.
inline constexpr std::uint32_t kSpareConnections = 16;

struct UpstreamConfig {
  std::string name;
  const segment::SharedUpstreamAddresses* addresses = nullptr;  ///< outlives the upstream
  std::uint16_t port = 0;  ///< initial port, until the addresses are known together with their port
  std::uint32_t shared_connections = 4;
  std::uint32_t max_calls = 1024;     ///< configured limit of outstanding calls; numbers() may be higher
  std::uint32_t max_clients = 64;     ///< number of client connections of the reactor
  std::uint64_t call_timeout_ns = 0;  ///< age at which a call disconnects its client; zero: unlimited
  bool privileged_port = false;       ///< true: bind to a port below 1024
  std::uint32_t credits = 64;         ///< maximum credits per client
  service::Withheld withheld{};
  ReplyBuffers replies;
  DuplicateRequestCache* cache = nullptr;  ///< shared by all reactors; outlives the upstream
  std::uint32_t handle_tag = 0;            ///< tag of its NFS 3 handles on the client side; zero: none
  bool spare = false;                      ///< true: a reload assigns the upstream later (UpstreamSlot)

  /// Returns the number of the reactor's connections, shared and dedicated.
  std::uint32_t connections() const noexcept { return shared_connections + max_clients + kSpareConnections; }
  /// Returns the maximum number of outstanding calls: max_calls, or the higher number that guarantees each
  /// client one.
  std::uint32_t numbers() const noexcept {
    return larger_of(max_calls, std::bit_ceil(least_for_equal_shares(max_clients)));
  }
};

/// References that all upstreams of a reactor share.
struct UpstreamContext {
  tcp::Uring& uring;
  rdma::Device& device;
  CreditLimits& credits;
  IterationClock& clock;
};

class UpstreamShared {
 public:
  using Counter = segment::UpstreamCounter;

  UpstreamShared(const UpstreamConfig& configuration, const UpstreamContext& context, std::uint32_t of_number,
                 segment::UpstreamArea& of_area)
      : config(configuration),
        number(of_number),
        uring(context.uring),
        clock(context.clock),
        area(of_area),
        addresses(*config.addresses, config.name, config.port),
        xids(2 * config.numbers(), random_value<std::uint32_t>()),
        unsent(config.max_clients) {
    publish_address();
  }

  std::uint64_t now_ns() const noexcept { return clock.now_ns(); }
  void count(Counter counter, std::uint64_t amount = 1) noexcept {
    auto& value = area.counters[static_cast<std::size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void publish_address() noexcept {
    if (const PeerAddress* const address = addresses.current()) area.address.write(*address);
  }
  /// Counts and publishes a new address. Each connection moves to it in its next follow_address().
  void address_changed() noexcept {
    count(Counter::address_changes);
    publish_address();
  }
  void address_failed(const PeerAddress& address) noexcept {
    if (addresses.failed(address, now_ns())) address_changed();
  }

  void note_unsent(const ForwardedCall& forwarded) noexcept {
    Unsent& of_client = unsent[forwarded.call->client()->number()];
    if (of_client.calls++ == 0) of_client.moved_ns = forwarded.begun_ns;
  }
  /// Removes a call from the unsent calls of its client. Call before changing the state in which the call is
  /// unsent().
  void no_longer_unsent(const ForwardedCall& forwarded) noexcept {
    if (!forwarded.unsent()) return;
    Unsent& of_client = unsent[forwarded.call->client()->number()];
    if (SLUICE_INVARIANT(of_client.calls > 0, pool_balance)) --of_client.calls;
    of_client.moved_ns = now_ns();
  }
  void note_sending(ForwardedCall& forwarded) noexcept {
    no_longer_unsent(forwarded);
    forwarded.sent_ns = now_ns();
    probe::upstream_call_sent(xdr::load_u32(forwarded.message.data()), forwarded.xid,
                              forwarded.message.size());
    area.gateway_ns.record(forwarded.sent_ns - forwarded.begun_ns);
    count(Counter::calls);
    if (forwarded.resent) count(Counter::resent);
  }

  const UpstreamConfig config;
  const std::uint32_t number;  ///< number of the upstream in the configuration
  tcp::Uring& uring;
  IterationClock& clock;
  segment::UpstreamArea& area;
  Addresses addresses;
  XidTable xids;  ///< XIDs of outstanding calls, except under RPCSEC_GSS
  struct Unsent {
    std::uint32_t calls = 0;
    std::uint64_t moved_ns = 0;  ///< time at which a call was last sent or the first of them arrived
  };
  std::vector<Unsent> unsent;  ///< indexed by client number
};

}  // namespace sluice::tcp_upstream
