// SPDX-License-Identifier: Apache-2.0
//
// Who may connect: limits per client and in all, and a limit on the rate of requests. Pure bookkeeping; one
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "pmd/rdma.h"

namespace sluice::policy {

struct AdmissionLimits {
  std::uint32_t max_connections = 0;
  std::uint32_t max_connections_per_client = 0;
  std::uint32_t max_requests_per_second = 0;
};

enum class Verdict { Admit, TooManyConnections, TooManyOfClient, TooFast };
const char* to_string(Verdict verdict);

class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  /// Judges a request; an admitted one counts from here on.
  Verdict judge(const rdma::PeerAddress& client, std::uint64_t now_ns);
  void connected(const rdma::PeerAddress& client) { ++per_client_[client.bytes], ++total_; }
  void disconnected(const rdma::PeerAddress& client);
  void forget_all() { per_client_.clear(), total_ = 0; }
  std::uint32_t connections() const { return total_; }

 private:
  AdmissionLimits limits_;
  std::map<std::array<std::uint8_t, 16>, std::uint32_t> per_client_;
  std::uint32_t total_ = 0;
  std::uint64_t window_start_ns_ = 0;
  std::uint32_t in_window_ = 0;
};

}  // namespace sluice::policy
