// SPDX-License-Identifier: Apache-2.0
//
// Signals that have no meaning for a plane. The default action of most of them ends the process, and with the
// data plane all exported files in memory. Called before threads are started.
#pragma once

#include <csignal>
#include <initializer_list>

namespace sluice {

/// Ignores signals that stray `kill` commands, timers, closed pipes, terminals and file size limits send.
/// Signals that report a defect of the program (such as SIGSEGV and SIGABRT), SIGQUIT and SIGTSTP keep their
/// default actions.
inline void ignore_meaningless_signals() noexcept {
  for (const int number : {SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGVTALRM, SIGPROF, SIGPOLL, SIGPWR, SIGSTKFLT,
                           SIGXFSZ, SIGTTIN, SIGTTOU})
    std::signal(number, SIG_IGN);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) std::signal(number, SIG_IGN);
}

}  // namespace sluice
