// SPDX-License-Identifier: Apache-2.0
//
// Views of connections: 'sluicectl connections', 'sluicectl properties', 'sluicectl busiest' and 'sluicectl
// credits'. They read the segment. The control plane's thread, except for count_connections(), which any
// thread may call.
//
// A listing is divided into pages. A position names a reactor and a connection number, so it stays valid
// while connections open and close. A connection that is open during the whole listing is listed exactly
// once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/admin/json_rpc.h"
#include "controlplane/admin/paced_work.h"
#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "controlplane/policy/busiest.h"
#include "controlplane/policy/credit_controller.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

struct Page {
  Json rows = Json::array();
  std::optional<std::uint64_t> next{};  ///< position of the next page; empty on the last page
};

/// Returns the position of a connection in listings.
constexpr std::uint64_t position_of(std::uint32_t reactor, std::uint32_t number) {
  return std::uint64_t{reactor} << 32 | number;
}

/// Returns the connections from position `from` on, limited by `most` and by `pace`. `describe` returns the
/// row of a connection, or nothing if the connection is not listed. Any `from` is valid input.
template <typename Describe>
Page page_of(const segment::Layout& layout, const segment::ConfigBlock& config, std::uint64_t from,
             std::uint32_t most, Pace& pace, const Describe& describe) {
  Page page;
  const std::uint32_t connections = config.all_connections();
  auto number = static_cast<std::uint32_t>(from);
  for (std::uint64_t reactor = from >> 32; reactor < config.reactors; ++reactor, number = 0) {
    const segment::ReactorArea& area = layout.reactors[reactor];
    for (; number < connections; ++number) {
      const auto of_reactor = static_cast<std::uint32_t>(reactor);
      if (pace.spent() || page.rows.size() >= most) {
        page.next = position_of(of_reactor, number);
        return page;
      }
      pace.count_row();
      if (area.use[number].open.load(std::memory_order_relaxed) == 0) continue;
      const auto info = segment::checked(area.connections[number]);
      if (!info || info->state == segment::ConnectionState::Unused) continue;
      std::optional<Json> row = describe(area, *info, of_reactor, number);
      if (!row) continue;
      pace.describe();
      page.rows.push_back(std::move(*row));
    }
  }
  return page;
}

/// Filter of the connections to list. An empty member matches every connection.
struct ConnectionFilter {
  std::optional<PeerAddress> peer;  ///< without a zone, it matches the address on each link
  std::string client_class;         ///< name
};

/// Returns the filter for an address and the name of a class, each of which may be empty. Throws MethodError
/// if `peer` is not an address or no class has the name.
ConnectionFilter connection_filter(const config::Config& config, const std::string& peer,
                                   const std::string& client_class);
/// Parses an address that an administrator has written. Throws MethodError if it is not one.
PeerAddress peer_argument(const std::string& text);

/// Returns the connections from position `from` on that match the filter, at most `most` of them.
Page connections(const segment::Layout& layout, const config::Config& config, const ConnectionFilter& filter,
                 std::uint64_t from, std::uint32_t most, Pace& pace);
/// Returns all details of one connection. Throws MethodError if there is no such connection.
Json show_connection(const segment::Layout& layout, const config::Config& config, std::uint32_t reactor,
                     std::uint32_t number);
/// Returns the transport properties of version 2 connections from position `from` on, of both sides.
Page connection_properties(const segment::Layout& layout, const segment::ConfigBlock& config,
                           std::uint64_t from, std::uint32_t most, Pace& pace);
/// Returns the sum of the connection counts that the reactors publish.
std::uint32_t count_connections(const segment::Layout& layout, const segment::ConfigBlock& config);

/// Returns the sums of `round`, and at most `count` of its busiest connections and of its busiest clients.
Json busiest(const policy::Round& round, const config::Config& config, std::uint32_t count);

/// Sums of the credits of the clients' open connections, by reactor and by class of clients. The summation
/// takes several iterations of the loop.
class CreditSums {
 public:
  /// The referenced objects outlive this one. `now_ns` is a time of segment::monotonic_ns().
  CreditSums(const segment::Layout& layout, const config::Config& config,
             const policy::CreditController& keeper, std::uint64_t now_ns);

  /// Adds connections until all have been added or `pace` is spent. Returns true if all have been added.
  bool add(Pace& pace);
  /// Returns the sums with the policy's own statistics.
  Json result() const;

 private:
  struct Sums {
    std::uint64_t connections = 0, granted = 0, used = 0, idle = 0;
  };

  void add_connection(std::uint32_t reactor, std::uint32_t number);

  const segment::Layout& layout_;
  const config::Config& config_;
  const policy::CreditController& keeper_;
  const std::uint64_t now_ns_;
  std::vector<Sums> by_reactor_;
  std::vector<Sums> by_class_;
  std::uint32_t reactor_ = 0;  ///< position of the next connection to add, with number_
  std::uint32_t number_ = 0;
};

/// Adds a job to `work` that answers with the sums once they are complete.
inline void answer_credits(PacedWork& work, const Answer& answer, CreditSums sums) {
  const auto shared = std::make_shared<CreditSums>(std::move(sums));
  const bool added = work.add(answer, [shared, answer](Pace& pace) {
    if (!shared->add(pace)) return false;
    answer.result(shared->result());
    return true;
  });
  if (!added) answer.problem(kTooManyJobs);
}

}  // namespace sluice::admin
