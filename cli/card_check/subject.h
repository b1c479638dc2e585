// SPDX-License-Identifier: Apache-2.0
//
// Port under test. Each test runs in a separate process, which sets the port before the test starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::card_check {

struct Subject {
  std::string device;     ///< empty: the first with a usable port
  std::uint8_t port = 1;  ///< port number, from 1
  // Indices in the port's GID table, or no value for the first usable GID.
  std::optional<std::uint32_t> left_gid{};   ///< of the queue pair that connects
  std::optional<std::uint32_t> right_gid{};  ///< of its peer
};

/// Returns the port under test. Written before tests run, by the thread that runs them.
inline Subject& subject() noexcept {
  static Subject the_subject;
  return the_subject;
}

}  // namespace sluice::card_check
