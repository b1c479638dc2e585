// SPDX-License-Identifier: Apache-2.0
//
// Addresses of one upstream. Its host names are resolved periodically, and each address is probed with a
// NULL call unless it is the only one. Known addresses stay valid until a lookup returns others, so a
// failing name server never removes a working server.
//
// The order of a name's addresses expresses no preference, because name servers rotate and shuffle them,
// and some return one address at a time. Therefore a known address keeps its position and new addresses are
// appended. An address that the last answer lacks is kept for a while if it replies to NULL.
//
// Lookups run on the threads of an arena, so that a slow name server delays nothing else. Everything else
// runs on the thread of address_manager.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/onc_rpc/rpc_link.h"
#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/polled_service.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/control_tables.h"

namespace sluice::tasks {
class Arena;
}

namespace sluice::upstreams {

struct LookupResult {
  std::vector<PeerAddress> addresses;
  std::string problem;  ///< clause that describes the failure, if there are no addresses
};
/// Resolves a host name. May block without limit; any thread. It must not refer to data that may be destroyed
/// before the process ends.
using LookUp = Function<LookupResult(const std::string& host)>;

/// Resolves a name for TCP with the system's resolver, getaddrinfo().
LookupResult look_up(const std::string& host);

/// One lookup at a time, on the thread of the arena's loop. If this object is destroyed, a waiting lookup is
/// not started and the result of a running one is dropped.
class HostLookup {
 public:
  /// Starts a lookup. Must not be called while running(). Returns false if the arena is full.
  [[nodiscard]] bool begin(tasks::Arena& arena, const LookUp& look_up, const std::string& host);
  /// Returns true if a lookup was started and its result has not been taken.
  bool running() const { return pending_ != nullptr; }
  /// Returns the result once there is one.
  std::optional<LookupResult> take();

 private:
  using Pending = std::optional<LookupResult>;
  std::shared_ptr<Pending> pending_;  ///< the task holds a weak reference, which expires with this object
};

/// Interval between lookups of a name.
inline constexpr std::uint64_t kLookupNs = 60'000'000'000;
/// Interval between lookups while the name cannot be resolved or the upstream cannot be reached.
inline constexpr std::uint64_t kUrgentLookupNs = 5'000'000'000;
/// Retry interval of a lookup that the arena refused because it was full.
inline constexpr std::uint64_t kCrowdedLookupNs = 1'000'000'000;
/// Maximum time for which an address is kept after it disappeared from the name server's answers. The address
/// has to reply to NULL.
inline constexpr std::uint64_t kUnlistedNs = 3'600'000'000'000;
/// Maximum number of such addresses per name. The most recently found ones are dropped.
inline constexpr std::uint32_t kMaxUnlisted = 8;

class AddressTable {
 public:
  /// `driver` is that of the device over which an RDMA upstream is reached. `arena` outlives this object, and
  /// its owner calls deliver().
  AddressTable(const segment::UpstreamConfig& upstream, segment::Driver driver, tasks::Arena& arena,
               LookUp look_up);

  /// Adopts the state of `former`, which belongs to an earlier configuration: the addresses of host names
  /// that both have, and the probe results of these addresses. Host names that have addresses already are
  /// left unchanged.
  void adopt(const AddressTable& former);

  const segment::UpstreamAddressList& list() const { return list_; }
  /// Schedules an early lookup of all names, because connections to the upstream have failed.
  void hurry(std::uint64_t now_ns);
  void prepare(PollSet& set);
  /// Processes lookups and probes. Returns true if the list has changed.
  bool poll(const PollSet& set, std::uint64_t now_ns);

 private:
  struct Known {
    PeerAddress address;
    std::optional<std::uint64_t> unlisted_since_ns;  ///< empty if the last answer contains the address
  };
  struct Host {
    std::string text;
    bool is_name = false;
    std::vector<Known> addresses;  ///< in the order in which they were found
    HostLookup lookup;
    std::uint64_t begun_ns = 0;
    std::uint64_t next_ns = 0;
    std::string problem;  ///< last reported problem, to report each one once
  };
  /// Probe state of an address.
  struct Check {
    PeerAddress address;
    std::uint32_t host = 0;  ///< index into hosts_
    onc_rpc::RpcLink link;
    std::uint32_t answers = 0;
    std::uint32_t failures = 0;
    std::uint64_t next_ns = 0;
    bool waits = false;
  };

  void look_up_hosts(std::uint64_t now_ns);
  LookupResult usable(LookupResult result) const;
  void found(Host& host, const LookupResult& answer, std::uint64_t now_ns);
  std::vector<Known> merged(const std::vector<Known>& known, const std::vector<PeerAddress>& found,
                            std::uint64_t now_ns) const;
  bool is_bad(const PeerAddress& address) const;
  bool is_listed(const PeerAddress& address) const;
  void collect();
  void ask(Check& check, std::uint64_t now_ns);
  void answered(Check& check, bool well);
  void write_list();

  const segment::UpstreamConfig upstream_;
  const segment::Driver driver_;
  tasks::Arena& arena_;
  const LookUp look_up_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Check>> checks_;  ///< probes of all addresses, in order of preference
  segment::UpstreamAddressList list_{};
  bool changed_ = false;
  std::uint64_t now_ns_ = 0;
};

}  // namespace sluice::upstreams
