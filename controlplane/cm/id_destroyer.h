// SPDX-License-Identifier: Apache-2.0
//
// Destroys identifiers of librdmacm on a thread of its own. rdma_destroy_id() returns when the kernel has let go of all messages
// of the identifier, and that has been seen to take as long as a message is sent again to a peer that does not answer (the kernel's
// own log says cm_destroy_id_wait_timeout, every 10 s). Other connections are made and ended meanwhile.
#pragma once

#include <rdma/rdma_cma.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>

namespace sluice::cm {

class IdDestroyer {
 public:
  IdDestroyer();
  /// Returns when all are destroyed. Before their event channels are.
  ~IdDestroyer();
  IdDestroyer(const IdDestroyer&) = delete;
  IdDestroyer& operator=(const IdDestroyer&) = delete;

  /// Never waits. Events of the identifier may still come, and are acknowledged by the caller as others are.
  void destroy(rdma_cm_id* id);
  /// Those that are not destroyed yet.
  std::size_t waiting() const;

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable given_;
  std::deque<rdma_cm_id*> ids_;  ///< the first is being destroyed
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace sluice::cm
