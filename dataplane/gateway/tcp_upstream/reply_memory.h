// SPDX-License-Identifier: Apache-2.0
//
// Registered memory for the replies of one upstream. Each client of the reactor has a share. Upstreams do not
// share this memory, so an upstream that does not answer cannot exhaust the memory of others. Only the owning
// reactor may call; the constructor is setup.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/service/api/binding.h"
#include "dataplane/tcp/record_stream.h"
#include "pmd/shared_buffers.h"

namespace sluice::tcp_upstream {

/// Size in bytes of a short buffer. Each record that was received in a stream's buffer fits in it.
inline constexpr std::uint32_t kItemBytes = tcp::kStreamBytes;
/// Maximum bytes of a record that is received without reply memory, regardless of its number of fragments.
/// The mark of a further fragment still fits in the stream's buffer behind such a record.
inline constexpr std::uint64_t kMostShortReply = tcp::kStreamBytes - xdr::kUnit;

struct ReplyBuffers {
  std::uint32_t records = 128;                      ///< number of long buffers, of record_bytes() each
  std::uint32_t items = 512;                        ///< number of short buffers, of kItemBytes each
  std::uint32_t max_io_bytes = tcp::kMaxDataBytes;  ///< maximum data bytes of one READ or WRITE

  /// Returns the size in bytes of a long buffer, which holds the longest call or reply.
  std::uint32_t record_bytes() const noexcept { return tcp::record_bytes(max_io_bytes); }
  /// Returns the maximum sizes of data and messages that the gateway carries to the upstream.
  service::CarriedSizes carried() const noexcept {
    return {.data_bytes = max_io_bytes, .message_bytes = record_bytes()};
  }

  /// Returns the number of short buffers, which guarantees each client one. Each client is also guaranteed a
  /// long buffer if there are at least least_for_equal_shares() of them.
  std::uint32_t items_for(std::uint32_t clients) const noexcept {
    return larger_of(items, least_for_equal_shares(clients));
  }
};

class ReplyMemory {
 public:
  /// Setup. Throws SetupError.
  ReplyMemory(rdma::Device& device, const ReplyBuffers& buffers, std::uint32_t clients) {
    const std::uint32_t items = buffers.items_for(clients);
    items_.provide({device, items, kItemBytes}, equal_shares(items, clients));
    records_.provide({device, buffers.records, buffers.record_bytes()},
                     equal_shares(buffers.records, clients));
  }

  /// Returns the buffers for `need`, which must not be ReplyNeed::None.
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
