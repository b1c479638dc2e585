// SPDX-License-Identifier: Apache-2.0
//
// Reloads of the configuration, one at a time: files are read in an arena, and what was read is applied by the loop. Who
// asks while files are being read is answered by the next reading: what this one has read may be older than what they
// want to have read. One thread, that of the arena's loop.
#pragma once

#include <vector>

#include "controlplane/admin/operations.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/base/function.h"

namespace sluice::controlplane {

class Reloader {
 public:
  /// On the loop.
  using Apply = Function<admin::ReloadResult()>;
  /// On a thread of the arena, on what it has itself (Arena::Work). Throws nothing: a defect is in the result of what it
  /// returns.
  using Read = Function<Apply()>;
  /// On the loop, at the beginning of each reading.
  using Begin = Function<Read()>;

  /// `arena` outlives it, and delivers nothing afterwards.
  Reloader(tasks::Arena& arena, Begin begin);
  Reloader(const Reloader&) = delete;
  Reloader& operator=(const Reloader&) = delete;

  /// `done` is called when the result is there; at once if the arena is full.
  void request(admin::Reloaded done);

 private:
  void start();
  void finish(const admin::ReloadResult& result);

  tasks::Arena& arena_;
  const Begin begin_;
  std::vector<admin::Reloaded> reading_;  ///< answered by this reading; empty: there is none
  std::vector<admin::Reloaded> next_;
};

}  // namespace sluice::controlplane
