// SPDX-License-Identifier: Apache-2.0
//
// Transfer of lists of exports between the main thread and a reactor.
#pragma once

#include <atomic>
#include <vector>

#include "dataplane/service/memory/exports.h"

namespace sluice::process {

/// Transfer of one list of exports at a time from the main thread to the reactor and back. The main thread
/// owns the list throughout; the reactor uses it between take() and give_back().
class ExportUpdate {
 public:
  using List = std::vector<service::memory::ExportOptions>;

  /// Offers a list to the reactor. Requires that the previous list has been returned. Main thread. Pairs with
  /// take(): the list is complete.
  void offer(List& exports) noexcept { offered_.store(&exports, std::memory_order_release); }
  /// Returns the list that the reactor no longer uses, with the previously applied exports; null while the
  /// reactor has not handled it. Main thread. Pairs with give_back(): the previously applied exports.
  List* take_back() noexcept { return returned_.exchange(nullptr, std::memory_order_acquire); }

  /// Returns the offered list; null if there is none. Reactor. Pairs with offer(): the list is complete.
  List* take() noexcept { return offered_.exchange(nullptr, std::memory_order_acquire); }
  /// Returns the list to the main thread. Reactor. Pairs with take_back(): the previously applied exports.
  void give_back(List& exports) noexcept { returned_.store(&exports, std::memory_order_release); }

 private:
  std::atomic<List*> offered_{nullptr};
  std::atomic<List*> returned_{nullptr};
};

}  // namespace sluice::process
