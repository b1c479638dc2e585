// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/dpdk_log.h"

#include <rte_log.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "dataplane/log/log.h"

namespace sluice::process {
namespace {

log::Level level_of(int dpdk) {
  if (dpdk <= static_cast<int>(RTE_LOG_CRIT)) return log::Level::Critical;
  if (dpdk == static_cast<int>(RTE_LOG_ERR)) return log::Level::Error;
  return dpdk == static_cast<int>(RTE_LOG_WARNING) ? log::Level::Warning : log::Level::Info;
}

/// Any thread.
ssize_t write_line(void*, const char* text, std::size_t bytes) {
  std::string_view line(text, bytes);
  const int level = rte_log_cur_msg_loglevel();
  // After a panic nobody empties a queue any more.
  if (level <= static_cast<int>(RTE_LOG_CRIT) && ::write(STDERR_FILENO, text, bytes) < 0) return 0;
  if (line.ends_with('\n')) line.remove_suffix(1);
  log::write(level_of(level), line);
  return static_cast<ssize_t>(bytes);
}

}  // namespace

void take_dpdk_log() {
  std::FILE* const stream =
      ::fopencookie(nullptr, "w", {.read = nullptr, .write = write_line, .seek = nullptr, .close = nullptr});
  if (stream != nullptr) rte_openlog_stream(stream);
}

}  // namespace sluice::process
