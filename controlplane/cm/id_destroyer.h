// SPDX-License-Identifier: Apache-2.0
//
// Destroys identifiers of librdmacm on a separate thread, which runs while there are identifiers.
// rdma_destroy_id() blocks until the kernel has released all messages of the identifier, which can take more
// than ten seconds (the kernel logs cm_destroy_id_wait_timeout). Other connections are opened and closed in
// this time. All functions are called by one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/owned.h"

struct rdma_cm_id;

namespace sluice::cm {

class IdDestroyer {
 public:
  /// Time after which the kernel begins to log the delay.
  static constexpr std::uint64_t kLongNs = 10'000'000'000;

  IdDestroyer();
  /// Blocks until all identifiers are destroyed. Must run before their event channels are destroyed.
  ~IdDestroyer();
  IdDestroyer(const IdDestroyer&) = delete;
  IdDestroyer& operator=(const IdDestroyer&) = delete;

  /// Queues an identifier for destruction without blocking. Its events may still arrive, and the caller
  /// acknowledges them like other events.
  void destroy(rdma_cm_id* id);
  /// Returns the number of identifiers that are not destroyed if the first has taken kLongNs and this was not
  /// reported yet, otherwise zero. Called periodically with a monotonic time.
  std::size_t stuck(std::uint64_t now_ns);

 private:
  struct Shared;

  const Owned<Shared> shared_;  ///< shared with the thread
  // State of stuck().
  std::uint64_t seen_destroyed_ = 0;
  std::uint64_t since_ns_ = 0;
  bool told_ = false;
};

}  // namespace sluice::cm
