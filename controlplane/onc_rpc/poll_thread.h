// SPDX-License-Identifier: Apache-2.0
//
// A thread with a poll loop that drives services. The services of a thread are polled one after the other, so
// a service that may block needs a separate thread.
#pragma once

#include "dataplane/base/owned.h"
#include "dataplane/base/polled_service.h"

namespace sluice::onc_rpc {

class PollThread {
 public:
  /// Starts the thread. `name` has at most 15 characters; debuggers and `ps` show it. Throws SetupError.
  explicit PollThread(const char* name);
  /// Ends the thread. All services must have been detached.
  ~PollThread();
  PollThread(const PollThread&) = delete;
  PollThread& operator=(const PollThread&) = delete;

  /// The time during which a thread polls a service. Created and destroyed by any other thread.
  class Attachment {
   public:
    /// Adds `service` to the services of `thread`. Both outlive this object.
    Attachment(PollThread& thread, PolledService& service);
    /// Begins the shutdown of the service, and blocks until it is finished.
    ~Attachment();
    Attachment(const Attachment&) = delete;
    Attachment& operator=(const Attachment&) = delete;

   private:
    PollThread& thread_;
    PolledService& service_;
  };

 private:
  struct Running;

  const Owned<Running> running_;
};

}  // namespace sluice::onc_rpc
