// SPDX-License-Identifier: Apache-2.0
//
// Shares of users and processes in the places of the admin socket. Neither one user nor one process can take
// all places. Single-threaded.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace sluice::admin {

/// Process at the other end of a connection, as the kernel reports it (SO_PEERCRED).
struct Process {
  std::uint32_t user = 0;  ///< user ID
  std::int64_t id = 0;     ///< process ID
  bool operator==(const Process&) const = default;
};

/// Places that one user holds, and places that one of its processes holds. The smallest holding gets the next
/// free place, and the largest holding loses a place.
struct Holding {
  std::size_t of_user = 0;
  std::size_t of_process = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): a defaulted comparison has no pointer (clang-tidy 14)
  auto operator<=>(const Holding&) const = default;

  void add(const Process& process, const Process& holder) {
    of_user += holder.user == process.user;
    of_process += holder == process;
  }
};

/// Returns true if a place may pass from `holder` to `process`. `held` and `own` are their holdings. After
/// the place has passed, `process` must not hold more than `holder`. Compares users, or processes of one
/// user.
inline bool passes(const Process& holder, const Holding& held, const Process& process, const Holding& own) {
  if (holder.user != process.user) return held.of_user > own.of_user + 1;
  return held.of_process > own.of_process + 1;
}

}  // namespace sluice::admin
