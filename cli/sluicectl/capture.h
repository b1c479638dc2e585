// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl capture': the data plane writes packets to a pipe, this process writes them where its user wants them. The
// capture ends with this process, however that ends.
#pragma once

#include <cstdint>
#include <string>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

struct CaptureOptions {
  std::string file;  ///< "-": standard output
  unsigned seconds = 10;
  std::uint64_t packets = 0;
  std::uint64_t mib = 1024;
  std::uint32_t snap = 9216;
  std::string peer;
  std::uint32_t queue_pair = 0;
  bool stop = false;  ///< ends the capture that runs, whoever has started it
};

/// Blocks until the capture has ended, by a limit or by SIGINT or SIGTERM, and returns its final status. Throws what
/// Client::ask() throws, and std::runtime_error if not all is where it should be.
Json capture(const Client& client, const CaptureOptions& options);

}  // namespace sluice::ctl
