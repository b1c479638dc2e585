// SPDX-License-Identifier: Apache-2.0
//
// Tests that Linux's rxe cannot pass, each with the reason. A hardware provider has no entry: its deviations
// are the result of the program.
#pragma once

#include <string_view>

namespace sluice::card_check {

struct KnownSkip {
  std::string_view provider;  ///< row in the table of providers (pmd/verbs/provider.h)
  std::string_view part;      ///< of the name of the test
  std::string_view end;       ///< of the name of the test
  std::string_view reason;
};

inline constexpr std::string_view kRxeLists =
    "rxe of rdma-core 44 loses scatter lists and inline data of the extended interface; Sluice uses the "
    "classic "
    "one with rxe";

inline constexpr KnownSkip kKnownSkips[] = {
    {"rxe", "Loopback.reads_bring_every_byte", "/extended_posting", kRxeLists},
    {"rxe", "Loopback.batches_of_16", "/extended_posting", kRxeLists},
    {"rxe", "DriverTest.", "/extended", kRxeLists},
    {"rxe", "Refusal.", "/extended", kRxeLists},
    {"rxe", "Windows.accesses_outside_of_a_window", "",
     "rxe compares an access with the bounds of the region, not of the window (drivers/infiniband/sw/rxe)"},
    {"rxe", "Loopback.a_message_too_long", "",
     "rxe answers with an operation error (drivers/infiniband/sw/rxe)"},
    {"rxe", "PlainLoopback.a_request_that_breaks_a_local_rule", "",
     "rxe of newer kernels completes the request as flushed (drivers/infiniband/sw/rxe/rxe_comp.c)"},
    {"rxe", "SharedLoopback.the_last_receive", "",
     "rxe does not raise IBV_EVENT_QP_LAST_WQE_REACHED (drivers/infiniband/sw/rxe)"},
};

/// Returns the reason to skip the test, or an empty text.
constexpr std::string_view known_skip(std::string_view provider, std::string_view test) noexcept {
  for (const KnownSkip& skip : kKnownSkips)
    if (skip.provider == provider && test.find(skip.part) != std::string_view::npos &&
        test.ends_with(skip.end))
      return skip.reason;
  return {};
}

}  // namespace sluice::card_check
