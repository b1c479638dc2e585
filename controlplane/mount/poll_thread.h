// SPDX-License-Identifier: Apache-2.0
//
// A thread that drives a service by turns: prepare() says what to wait for, turn() does what can be done without
// waiting.
#pragma once

#include <cstdint>

#include "controlplane/mount/poll_set.h"
#include "dataplane/base/owned.h"

namespace sluice::mount {

class PolledService {
 public:
  virtual ~PolledService() = default;
  virtual void prepare(PollSet& set) = 0;
  virtual void turn(const PollSet& set, std::uint64_t now_ns) = 0;
  /// The end: turns go on until finished().
  virtual void finish(std::uint64_t /*now_ns*/) {}
  virtual bool finished() const { return true; }
};

class PollThread {
 public:
  /// Starts. `service` outlives it. Throws SetupError.
  explicit PollThread(PolledService& service);
  /// Waits until the service is finished.
  ~PollThread();
  PollThread(const PollThread&) = delete;
  PollThread& operator=(const PollThread&) = delete;

 private:
  struct Running;

  const Owned<Running> running_;
};

}  // namespace sluice::mount
