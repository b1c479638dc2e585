// SPDX-License-Identifier: Apache-2.0
//
// Services of the programs of one upstream, which a reload can change. There are twice as many as an upstream
// has programs, so that new programs can be served while calls of former ones are in progress. Only the
// owning reactor may call; only the constructor allocates.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "dataplane/base/owned.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/service/api/service.h"
#include "dataplane/ulb/bindings.h"

namespace sluice::gateway {

/// Holds the services. `Service` has assign(), which requires that has_calls() is false, and route(). Clients
/// find a service at a `Place`; places can be compared.
template <typename Service, typename Place>
class ProgramServices {
 public:
  /// Setup. `make` returns a new service.
  template <typename Make>
  explicit ProgramServices(const Make& make) {
    for (Entry& entry : entries_) entry.service = make();
  }

  /// Calls `visit` for each service, whether it is offered or not.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const Entry& entry : entries_) visit(*entry.service);
  }
  /// Offers a service for each program at `place_of(binding)`, and withdraws those at other places and of
  /// other programs. `offer` and `withdraw` get a service and its place; `offer` returns false if it fails.
  /// Returns false if a program is not served, because too many services have calls in progress, or `offer`
  /// failed.
  template <typename PlaceOf, typename Offer, typename Withdraw>
  bool serve(std::span<const service::Route> programs, const PlaceOf& place_of, const Offer& offer,
             const Withdraw& withdraw) noexcept {
    for (Entry& entry : entries_)
      if (entry.offered && (!has_element(programs, entry.service->route()) ||
                            entry.place != place_of(entry.service->binding())))
        take_back(entry, withdraw);
    bool all = true;
    for (const service::Route& route : programs) {
      Entry* const entry = entry_for(route);
      if (entry != nullptr && !entry->offered) {
        entry->place = place_of(entry->service->binding());
        entry->offered = offer(*entry->service, entry->place);
      }
      all &= entry != nullptr && entry->offered;
    }
    return all;
  }
  /// Withdraws all services.
  template <typename Withdraw>
  void withdraw_all(const Withdraw& withdraw) noexcept {
    for (Entry& entry : entries_)
      if (entry.offered) take_back(entry, withdraw);
  }

 private:
  struct Entry {
    Owned<Service> service;
    bool offered = false;  ///< false: free, or calls are still in progress
    Place place{};
  };

  /// Returns the entry that has the program, or one to which it has been assigned. Null: none is free.
  Entry* entry_for(const service::Route& route) noexcept {
    if (Entry* const has =
            first_match(entries_, [&](const Entry& each) { return each.service->route() == route; }))
      return has;
    Entry* const free =
        first_match(entries_, [](const Entry& each) { return !each.offered && !each.service->has_calls(); });
    if (free != nullptr) free->service->assign(ulb::binding_or_plain(route.program, route.version));
    return free;
  }
  template <typename Withdraw>
  static void take_back(Entry& entry, const Withdraw& withdraw) noexcept {
    entry.offered = false;
    withdraw(*entry.service, entry.place);
  }

  std::array<Entry, std::size_t{2} * segment::kMaxRoutes> entries_;
};

}  // namespace sluice::gateway
