// SPDX-License-Identifier: Apache-2.0
//
// Reloads of the configuration, one at a time. Files are read in an arena, and the loop applies the result.
// Requests that arrive during a read are answered by the next read, because the current one may have read an
// older file. Runs on the thread of the arena's loop.
#pragma once

#include <vector>

#include "controlplane/admin/operations.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/base/function.h"

namespace sluice::controlplane {

class Reloader {
 public:
  /// Applies what was read. Called on the loop.
  using Apply = Function<admin::ReloadResult()>;
  /// Reads files on a thread of the arena, with its own copies only (Arena::Work). Must not throw; a defect
  /// is part of the result of the returned function.
  using Read = Function<Apply()>;
  /// Prepares a read. Called on the loop.
  using Begin = Function<Read()>;

  /// `arena` outlives this object, and must not deliver results after its destruction.
  Reloader(tasks::Arena& arena, Begin begin);
  Reloader(const Reloader&) = delete;
  Reloader& operator=(const Reloader&) = delete;

  /// Requests a reload. `done` is called with the result, or before this function returns if the arena is
  /// full.
  void request(admin::Reloaded done);

 private:
  void start();
  void finish(const admin::ReloadResult& result);

  tasks::Arena& arena_;
  const Begin begin_;
  std::vector<admin::Reloaded> reading_;  ///< requests that the current read answers; empty without one
  std::vector<admin::Reloaded> next_;
};

}  // namespace sluice::controlplane
