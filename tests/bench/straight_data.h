// SPDX-License-Identifier: Apache-2.0
//
// A client without a gateway that reads and writes as fast as one TCP connection allows: it sends data
// without copying it, and receives data in its final place. It polls without blocking.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/bench/forward_calls.h"
#include "tests/bench/rate.h"

namespace sluice::bench {

class StraightData {
 public:
  StraightData(std::uint16_t port, const ForwardedShape& shape, std::uint32_t depth);
  ~StraightData();
  StraightData(const StraightData&) = delete;
  StraightData& operator=(const StraightData&) = delete;

  /// Measures. May be called once.
  Rate run(double seconds);

 private:
  void send();
  void advance(std::size_t bytes);
  std::size_t receive();

  const ForwardedShape shape_;
  const std::uint32_t depth_;
  const int socket_;
  std::vector<std::byte> call_;  ///< with its record mark, without data
  std::vector<std::byte> data_;  ///< data of WRITEs
  std::uint32_t to_send_;        ///< calls to send, the first of them possibly in part
  std::size_t sent_ = 0;         ///< bytes sent of the first call
  std::uint64_t calls_sent_ = 0;
  std::size_t reply_bytes_ = 0;
  std::size_t places_ = 0;         ///< for replies: one per call, unless replies are short
  std::size_t receive_bytes_ = 0;  ///< size of a place: one long reply, or many short ones
  std::vector<std::byte> in_;
  std::size_t filled_ = 0;  ///< bytes received of a reply
  std::uint64_t replies_ = 0;
  std::vector<iovec> vectors_;
};

}  // namespace sluice::bench
