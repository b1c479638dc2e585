// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace sluice::cli {
namespace {

int first_error = 0;  ///< errno; zero: none, or not known

}  // namespace

bool flush_output() noexcept {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (first_error == 0) first_error = errno;
  return flushed && std::ferror(stdout) == 0 && std::cout.good();
}

int finish_output(int status, int failed) noexcept {
  if (flush_output()) return status;
  std::fprintf(stderr, "Standard output could not be written (%s): the output is incomplete.\n",
               first_error != 0 ? std::strerror(first_error) : "write error");
  return failed;
}

}  // namespace sluice::cli
