// SPDX-License-Identifier: Apache-2.0
//
// Work requests and work completions, with the names and semantics of the Verbs (InfiniBand Architecture
// Specification volume 1, chapters 10 and 11). Plain values; any thread. They refer to memory but do not own
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::rdma {

enum class Lkey : std::uint32_t {};
/// Remote key, the steering tag that travels in segment handles.
enum class Rkey : std::uint32_t {};
enum class QueuePairNumber : std::uint32_t {};

struct Sge {
  std::byte* address = nullptr;
  std::uint32_t length = 0;
  Lkey lkey{};
};

inline std::uint64_t total_bytes(std::span<const Sge> pieces) noexcept {
  std::uint64_t sum = 0;
  for (const Sge& piece : pieces) sum += piece.length;
  return sum;
}

enum class SendOpcode : std::uint8_t {
  Send,
  SendWithInvalidate,
  RdmaWrite,
  RdmaRead,
  LocalInvalidate,
  SendWithImmediate,       ///< only where DeviceLimits::immediate_data
  RdmaWriteWithImmediate,  ///< only where DeviceLimits::immediate_data; consumes a Receive of the peer
};

enum SendFlags : std::uint8_t {
  kSignaled = 1,   ///< generate a work completion on success too; errors always generate one
  kFence = 2,      ///< wait for earlier RDMA Reads of this queue pair
  kSolicited = 4,  ///< request a solicited event at the peer
};

/// The Sge array is read only during post_send(). The memory that it refers to must stay valid, and belongs
/// to the driver, until the work completion.
struct SendWr {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges{};
  std::uint64_t remote_address = 0;  ///< RdmaWrite, RdmaRead
  Rkey rkey{};  ///< RdmaWrite, RdmaRead: rkey of the peer; SendWithInvalidate: handle of the peer to
                ///< invalidate; LocalInvalidate: rkey of our window
  SendOpcode opcode = SendOpcode::Send;
  std::uint8_t flags = kSignaled;
  std::uint32_t immediate = 0;  ///< SendWithImmediate, RdmaWriteWithImmediate
};

struct RecvWr {
  std::uint64_t wr_id = 0;
  Sge sge;
};

enum class WcStatus : std::uint8_t {
  Success,
  LocalLengthError,      ///< a Send was longer than the Receive that it consumed (receiver's side)
  LocalProtectionError,  ///< an Sge outside its region, or a region without the required access
  WrFlushError,          ///< the queue pair entered Error first
  BindError,             ///< a window could not be bound or invalidated
  RemoteInvalidRequest,  ///< the peer refused the request (Receive too short, no Read resources)
  RemoteAccessError,     ///< rkey, bounds, access rights or protection domain do not allow the access
  RemoteOperationError,  ///< an error on the peer's side
  RetryExceeded,         ///< the peer does not respond
  RnrRetryExceeded,      ///< receiver-not-ready more often than rnr_retry allows
};
const char* to_string(WcStatus status) noexcept;

enum class WcOpcode : std::uint8_t {
  Send,
  RdmaWrite,
  RdmaRead,
  LocalInvalidate,
  BindWindow,
  RegisterRegion,  ///< QueuePair::register_region()
  Receive,
};

/// Opcode of the work completion of a send work request.
constexpr WcOpcode completion_opcode(SendOpcode opcode) noexcept {
  switch (opcode) {
    case SendOpcode::Send:
    case SendOpcode::SendWithInvalidate:
    case SendOpcode::SendWithImmediate:
      return WcOpcode::Send;
    case SendOpcode::RdmaWrite:
    case SendOpcode::RdmaWriteWithImmediate:
      return WcOpcode::RdmaWrite;
    case SendOpcode::RdmaRead:
      return WcOpcode::RdmaRead;
    case SendOpcode::LocalInvalidate:
      return WcOpcode::LocalInvalidate;
  }
  return WcOpcode::Send;
}

struct WorkCompletion {
  std::uint64_t wr_id = 0;
  std::uint32_t byte_len = 0;  ///< Receive, RdmaRead: bytes placed. Only valid with Success.
  QueuePairNumber qp{};
  /// Receive with remote_invalidate: the handle that the peer invalidated. RegisterRegion: the key of the
  /// region. Else zero.
  Rkey rkey{};
  WcStatus status = WcStatus::Success;
  WcOpcode opcode = WcOpcode::Send;
  bool remote_invalidate = false;
  bool has_immediate = false;      ///< Receive
  std::uint32_t immediate = 0;     ///< Receive with has_immediate
  std::uint32_t vendor_error = 0;  ///< the device's own number of an error; zero if it has none
};

}  // namespace sluice::rdma
