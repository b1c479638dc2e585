// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/requester/request.h"

namespace sluice::rpcrdma {

const char* to_string(CallStatus status) noexcept {
  switch (status) {
    case CallStatus::Ok:
      return "ok";
    case CallStatus::ChunkError:
      return "RDMA_ERROR ERR_CHUNK";
    case CallStatus::Refused:
      return "RDMA2_ERROR";
    case CallStatus::VersionError:
      return "RDMA_ERROR ERR_VERS";
    case CallStatus::UnusableReply:
      return "unusable reply";
    case CallStatus::TooLarge:
      return "too large for the connection";
    case CallStatus::TimedOut:
      return "timed out";
    case CallStatus::Cancelled:
      return "cancelled";
    case CallStatus::ConnectionLost:
      return "connection lost";
  }
  return "?";
}

ItemResult Reply::item(std::size_t index, std::uint32_t count) const noexcept {
  using Where = ItemResult::Where;
  const bool offered = index < write_items_ && index < returned_.size();
  const std::uint64_t returned = offered ? returned_[index] : 0;
  if (version_2_) {
    // A result that its chunk could have taken may not come inline, and round-up is no part of it (V2-071,
    // V2-096).
    if (!offered || write_segments_[index] == 0) return {Where::Inline};
    return {returned == count ? Where::Placed : Where::Defect};
  }
  if (returned == 0) return {Where::Inline};
  const bool agrees = count <= returned && returned <= xdr::padded(count);
  return {agrees ? Where::Placed : Where::Defect};
}

}  // namespace sluice::rpcrdma
