// SPDX-License-Identifier: Apache-2.0
//
// Sentences of a verbs device for the log. The reactor records failed work requests without a lock or an
// allocation; set-up adds whole sentences. One other thread takes both.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/spsc_ring.h"
#include "pmd/device.h"

namespace sluice::rdma::verbs {

class Notices {
 public:
  enum class Kind : std::uint8_t {
    SendFailed,
    ReceiveFailed,
    NotFlushed,      ///< the device ends; without status and vendor error
    RegionNotMade,   ///< without status and vendor error
    RegionNotEnded,  ///< like NotFlushed
  };
  /// A failure of a queue pair that ends a connection.
  struct Failure {
    std::uint32_t queue_pair = 0;  ///< QPN
    std::uint32_t vendor_error = 0;
    ibv_wc_status status = IBV_WC_SUCCESS;
    Kind kind = Kind::SendFailed;
  };

  /// Message path. Drops the failure if kFailures have not been taken yet.
  void add(const Failure& failure) noexcept { failures_.push(failure); }
  /// Setup. Any thread.
  void add(std::string sentence) {
    const std::lock_guard lock(lock_);
    sentences_.push_back(std::move(sentence));
  }
  /// Takes a sentence of the device, or the sentence of a failure, which is a warning.
  Notice take(const std::string& device, std::string& sentence) {
    const std::lock_guard lock(lock_);
    if (!sentences_.empty()) {
      sentence = std::move(sentences_.front());
      sentences_.erase(sentences_.begin());
      return kInformation;
    }
    Failure failure;
    if (!failures_.pop(failure)) return kNoNotice;
    sentence = sentence_of(failure, device);
    return kWarning;
  }

 private:
  static std::string sentence_of(const Failure& failure, const std::string& device) {
    const std::string pair = "queue pair " + std::to_string(failure.queue_pair);
    if (failure.kind == Kind::RegionNotMade)
      return "The RDMA device " + device + " refused to register memory for a call of " + pair +
             ". Its connection ends. Raise the limit of locked memory (LimitMEMLOCK of the service), or see "
             "the kernel log";
    if (failure.kind == Kind::RegionNotEnded)
      return "The RDMA device " + device + " refused to deregister memory of a call of " + pair +
             ". It is closed and opened again. See the kernel log";
    if (failure.kind == Kind::NotFlushed)
      return "The RDMA device " + device + " did not flush " + pair +
             " in time. It is closed and opened again. Check its firmware and the kernel log";
    return "A " + std::string(failure.kind == Kind::ReceiveFailed ? "Receive" : "work request") + " of " +
           pair + " of the RDMA device " + device + " failed: " + ibv_wc_status_str(failure.status) +
           " (status " + std::to_string(failure.status) + ", vendor error " +
           std::to_string(failure.vendor_error) + "). Its connection ends";
  }

  static constexpr std::uint32_t kFailures = 64;

  std::mutex lock_;
  std::vector<std::string> sentences_;  ///< guarded by lock_
  SpscRing<Failure, kFailures> failures_;
};

}  // namespace sluice::rdma::verbs
