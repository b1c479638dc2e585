// SPDX-License-Identifier: Apache-2.0
//
// Version 2: traffic and all counters that it changes.
#pragma once

#include <gtest/gtest.h>

#include "tests/conformance/counted.h"
#include "tests/conformance/v2_client.h"

namespace sluice::conformance::v2 {

inline constexpr std::uint32_t kXid = 0x51;
inline constexpr std::uint64_t kPlainCall = 76;  ///< without arguments
inline constexpr std::uint64_t kPlainReply = 60;

/// Traffic on a new connection of version 2, and the counters that it changes.
template <typename Lab>
struct Case {
  const char* what;
  void (*run)(Lab& lab);
  Counted expected;
};

inline void expect_counts(std::initializer_list<Case<Server>> cases,
                          const LabOptions& options = Server::defaults()) {
  for (const auto& some : cases) {
    Server lab(options);
    lab.hello();
    expect_counted(lab, some);
  }
}
inline void expect_counts(std::initializer_list<Case<Client>> cases,
                          const LabOptions& options = Client::defaults()) {
  for (const auto& some : cases) {
    Client lab(options);
    lab.confirm();
    expect_counted(lab, some);
  }
}

inline Counted with(Counted all, const Counted& more) {
  all.insert(more.begin(), more.end());
  return all;
}
inline Counted received(std::uint64_t messages, std::uint64_t bytes, const Counted& more = {}) {
  return with({{"messages_received", messages}, {"inline_bytes_received", bytes}}, more);
}
/// One call that is refused, and the reason.
inline Counted refused(std::uint64_t bytes, const char* counter) {
  return received(1, bytes, {{"calls_received", 1}, {"v2_errors_sent", 1}, {counter, 1}});
}
inline Counted answered(std::uint64_t bytes, std::uint64_t reply_bytes, const Counted& more = {}) {
  return with(
      received(1, bytes, {{"calls_received", 1}, {"replies_sent", 1}, {"inline_bytes_sent", reply_bytes}}),
      more);
}

}  // namespace sluice::conformance::v2
