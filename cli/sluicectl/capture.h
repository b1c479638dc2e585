// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl capture': the data plane writes packets to a pipe, and this process copies them to the user's
// output. The capture ends with this process, even if the process is killed.
#pragma once

#include <cstdint>
#include <string>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

struct CaptureOptions {
  std::string file;  ///< output file; "-" means standard output
  unsigned seconds = 10;
  std::uint64_t packets = 0;
  std::uint64_t mib = 1024;
  std::uint32_t snap = 9216;
  std::string peer;
  std::uint32_t queue_pair = 0;
  bool stop = false;  ///< ends the running capture, including one that another user has started
};

/// Captures packets until a limit, SIGINT or SIGTERM, and returns the final status. Blocks. Throws what
/// Client::ask() throws, and std::runtime_error if the output is incomplete.
Json capture(const Client& client, const CaptureOptions& options);

}  // namespace sluice::ctl
