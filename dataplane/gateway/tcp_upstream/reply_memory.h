// SPDX-License-Identifier: Apache-2.0
//
// Registered memory for the replies of one upstream, in which each client of the reactor has its share. An
// upstream shares it with no other: what hangs there keeps nothing from those that answer. Only the owning
// reactor may call; the constructor is setup.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/service/api/binding.h"
#include "dataplane/tcp/record_stream.h"
#include "pmd/shared_buffers.h"

namespace sluice::tcp_upstream {

/// Of a short buffer. A record that is received in a stream's buffer fits it.
inline constexpr std::uint32_t kItemBytes = tcp::kStreamBytes;
/// Longest record that never needs memory while it is received, in however many fragments it comes: the mark
/// of the next one fits behind it.
inline constexpr std::uint64_t kMostShortReply = tcp::kStreamBytes - xdr::kUnit;

struct ReplyBuffers {
  std::uint32_t records = 128;                      ///< of record_bytes()
  std::uint32_t items = 512;                        ///< of kItemBytes
  std::uint32_t max_io_bytes = tcp::kMaxDataBytes;  ///< most data of one READ or WRITE

  /// Returns the size of a long buffer, which the longest call or reply fits.
  std::uint32_t record_bytes() const noexcept { return tcp::record_bytes(max_io_bytes); }
  /// Returns the sizes of data and messages that the gateway carries to the upstream.
  service::CarriedSizes carried() const noexcept {
    return {.data_bytes = max_io_bytes, .message_bytes = record_bytes()};
  }

  /// Each client is guaranteed a short buffer. A long one as well where there are
  /// least_for_equal_shares() of them.
  std::uint32_t items_for(std::uint32_t clients) const noexcept {
    return larger_of(items, least_for_equal_shares(clients));
  }
};

class ReplyMemory {
 public:
  /// Throws SetupError.
  ReplyMemory(rdma::Device& device, const ReplyBuffers& buffers, std::uint32_t clients) {
    const std::uint32_t items = buffers.items_for(clients);
    items_.provide({device, items, kItemBytes}, equal_shares(items, clients));
    records_.provide({device, buffers.records, buffers.record_bytes()},
                     equal_shares(buffers.records, clients));
  }

  /// Not of ReplyNeed::None.
  rdma::SharedBuffers& of(ReplyNeed need) noexcept { return need == ReplyNeed::Record ? records_ : items_; }
  const rdma::SharedBuffers& of(ReplyNeed need) const noexcept {
    return need == ReplyNeed::Record ? records_ : items_;
  }
  rdma::SharedBuffers& items() noexcept { return items_; }
  rdma::SharedBuffers& records() noexcept { return records_; }

 private:
  rdma::SharedBuffers items_;
  rdma::SharedBuffers records_;
};

}  // namespace sluice::tcp_upstream
