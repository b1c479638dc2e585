// SPDX-License-Identifier: Apache-2.0
//
// Destroys identifiers of librdmacm on a thread of its own. rdma_destroy_id() returns when the kernel has let go of all messages
// of the identifier, and that has been seen to take more than ten seconds (the kernel's own log says cm_destroy_id_wait_timeout).
// Other connections are made and ended meanwhile. One thread calls everything here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/owned.h"

struct rdma_cm_id;

namespace sluice::cm {

class IdDestroyer {
 public:
  /// When the kernel's log begins to tell of it.
  static constexpr std::uint64_t kLongNs = 10'000'000'000;

  IdDestroyer();
  /// Returns when all are destroyed. Before their event channels are.
  ~IdDestroyer();
  IdDestroyer(const IdDestroyer&) = delete;
  IdDestroyer& operator=(const IdDestroyer&) = delete;

  /// Never waits. Events of the identifier may still come, and are acknowledged by the caller as others are.
  void destroy(rdma_cm_id* id);
  /// How many are not destroyed, when the first has taken kLongNs and that was not told yet; else zero. To be called from time to
  /// time, by a clock that never goes back.
  std::size_t stuck(std::uint64_t now_ns);

 private:
  struct Shared;

  const Owned<Shared> shared_;  ///< with the thread
  // What stuck() has seen.
  std::uint64_t seen_destroyed_ = 0;
  std::uint64_t since_ns_ = 0;
  bool told_ = false;
};

}  // namespace sluice::cm
