// SPDX-License-Identifier: Apache-2.0
//
// Child processes with a deadline. Used by a program without other threads.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace sluice::card_check {

/// Descriptor on which a child of this program sends its messages.
inline constexpr int kMessageDescriptor = 3;

struct Ended {
  enum class How : unsigned char {
    Exited,
    Signaled,
    TimedOut,  ///< killed at the deadline
    Stuck,     ///< not ended by SIGKILL, because a system call in the kernel does not return
    NotStarted,
  };
  How how = How::NotStarted;
  int code = 0;          ///< exit status, or number of the signal
  std::string messages;  ///< text from the descriptor, at most kMaxOutputBytes
  std::string errors;    ///< text from standard error and, unless that is the descriptor, standard output
  double seconds = 0;
};

inline constexpr std::size_t kMaxOutputBytes = 1u << 20;

/// Runs a program, which is searched for in $PATH if its name has no slash, and waits for its end. Standard
/// input is empty. The program's output on `descriptor` becomes Ended::messages.
Ended run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds limit,
                  int descriptor = kMessageDescriptor);

/// Returns what happened to the process, as a part of a sentence: "was ended by signal SIGSEGV".
std::string describe(const Ended& ended);

}  // namespace sluice::card_check
