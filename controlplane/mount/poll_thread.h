// SPDX-License-Identifier: Apache-2.0
//
// A thread with a poll loop that drives a service. prepare() registers the events to wait for, and poll()
// does the work that is possible without blocking.
#pragma once

#include <cstdint>

#include "controlplane/mount/poll_set.h"
#include "dataplane/base/owned.h"

namespace sluice::mount {

class PolledService {
 public:
  virtual ~PolledService() = default;
  virtual void prepare(PollSet& set) = 0;
  virtual void poll(const PollSet& set, std::uint64_t now_ns) = 0;
  /// Begins the shutdown. The loop continues until finished().
  virtual void finish(std::uint64_t /*now_ns*/) {}
  virtual bool finished() const { return true; }
};

class PollThread {
 public:
  /// Starts the thread. `service` outlives this object. Throws SetupError.
  explicit PollThread(PolledService& service);
  /// Begins the shutdown and blocks until the service is finished.
  ~PollThread();
  PollThread(const PollThread&) = delete;
  PollThread& operator=(const PollThread&) = delete;

 private:
  struct Running;

  const Owned<Running> running_;
};

}  // namespace sluice::mount
