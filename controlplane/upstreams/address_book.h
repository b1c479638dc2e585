// SPDX-License-Identifier: Apache-2.0
//
// The addresses of one upstream: its hosts are resolved again and again, and each address is asked for a reply to
// NULL, unless it is the only one. What has once been found stays while nothing else is: a name server that fails
// takes no server away.
//
// The order of a name's addresses is no preference, because name servers rotate and shuffle them, and some give one at
// a time. So an address keeps its place, new ones come after it, and one that the last answer lacks stays for a while
// if it answers NULL.
//
// One thread, the keeper's (address_keeper.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/mount/poll_set.h"
#include "controlplane/mount/rpc_link.h"
#include "controlplane/upstreams/host_lookup.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/upstream_addresses.h"

namespace sluice::upstreams {

/// Between one lookup of a name and the next.
inline constexpr std::uint64_t kLookupNs = 60'000'000'000;
/// The same while it cannot be resolved, or the upstream cannot be reached.
inline constexpr std::uint64_t kUrgentLookupNs = 5'000'000'000;
/// The same while there are too many lookups.
inline constexpr std::uint64_t kCrowdedLookupNs = 1'000'000'000;
/// Limit of the time for which an address is kept that is no longer among the name server's answers. It has to
/// answer NULL.
inline constexpr std::uint64_t kUnlistedNs = 3'600'000'000'000;
/// Limit of the number of such addresses of one name. Those found last are dropped.
inline constexpr std::uint32_t kMaxUnlisted = 8;

class AddressBook {
 public:
  /// `arena` outlives it, and its owner delivers what its tasks have found.
  AddressBook(const segment::UpstreamConfig& upstream, tasks::Arena& arena, LookUp look_up);

  /// Takes over what `former`, of an earlier configuration, knows: the addresses of names that both have, and which of
  /// its addresses answer. Names for which it has addresses already stay as they are.
  void adopt(const AddressBook& former);

  const segment::UpstreamAddressList& list() const { return list_; }
  /// Connections to an upstream have failed: names are looked up again soon.
  void hurry(std::uint64_t now_ns);
  void prepare(mount::PollSet& set);
  /// True: the list has changed.
  bool turn(const mount::PollSet& set, std::uint64_t now_ns);

 private:
  struct Known {
    PeerAddress address;
    std::optional<std::uint64_t> unlisted_since_ns;  ///< none: the last answer has it
  };
  struct Host {
    std::string text;
    bool is_name = false;
    std::vector<Known> addresses;  ///< as they were found, the first one first
    HostLookup lookup;
    std::uint64_t begun_ns = 0;
    std::uint64_t next_ns = 0;
    std::string problem;  ///< reported
  };
  /// Whether an address answers.
  struct Check {
    PeerAddress address;
    std::uint32_t host = 0;  ///< its place among hosts_
    mount::RpcLink link;
    std::uint32_t answers = 0;
    std::uint32_t failures = 0;
    std::uint64_t next_ns = 0;
    bool waits = false;
  };

  void look_up_hosts(std::uint64_t now_ns);
  void found(Host& host, const LookupResult& result, std::uint64_t now_ns);
  std::vector<Known> merged(const std::vector<Known>& known, const std::vector<PeerAddress>& found,
                            std::uint64_t now_ns) const;
  bool is_bad(const PeerAddress& address) const;
  bool is_listed(const PeerAddress& address) const;
  void collect();
  void ask(Check& check, std::uint64_t now_ns);
  void answered(Check& check, bool well);
  void write_list();

  const segment::UpstreamConfig upstream_;
  tasks::Arena& arena_;
  const LookUp look_up_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Check>> checks_;  ///< of all addresses, in order of preference
  segment::UpstreamAddressList list_{};
  bool changed_ = false;
  std::uint64_t now_ns_ = 0;
};

}  // namespace sluice::upstreams
