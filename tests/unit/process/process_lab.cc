// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/process/process_lab.h"

#include <unistd.h>

#include <cstring>

namespace sluice::process {

std::string unique_name(const std::string& purpose) {
  static int next = 0;
  return "sluice-test-" + purpose + "-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
}

segment::ConfigBlock loopback_config() {
  segment::ConfigBlock config;
  config.generation = 1;
  config.max_connections = 2;
  config.credits = 8;
  config.call_buffers = config.large_reply_buffers = 1;
  config.loopback_links = 2;
  config.loopback_arena_bytes = 1u << 20;
  config.memory_bytes = 16u << 20;
  config.max_files = 100;
  const std::string path = "/dev/shm/" + unique_name("loopback");
  std::strncpy(config.loopback_path, path.c_str(), sizeof config.loopback_path - 1);
  return config;
}

segment::UpstreamConfig rdma_upstream(const char* name, std::uint32_t connections) {
  segment::UpstreamConfig upstream;
  std::strncpy(upstream.name, name, sizeof upstream.name - 1);
  upstream.transport = segment::Transport::Rdma;
  upstream.connections = connections;
  upstream.route_count = 1;
  upstream.routes[0] = {100003, 4};
  return upstream;
}

}  // namespace sluice::process
