// SPDX-License-Identifier: Apache-2.0
//
// Translates between a whole RPC call and a call over RPC-over-RDMA: reduces the call (RFC 8166, section 3.4;
// RFC 8267), chooses where the server places the reply's data, and reassembles the reply. Callable only on
// the client's reactor. Never allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/client_call.h"
#include "dataplane/gateway/rdma_server/server_side.h"
#include "dataplane/rpc/message.h"
#include "dataplane/rpcrdma/requester/requester.h"

namespace sluice::rdma_server {

/// Limit of one client: 1/kShareOfRecords of the long buffers, but at least two.
inline constexpr std::uint32_t kShareOfRecords = 4;

/// Buffers that one client holds from the pools shared by all clients of a gateway.
class ClientBuffers {
 public:
  /// Setup only. The side outlives this object.
  explicit ClientBuffers(ServerSide& side) noexcept : side_(side) {}

  /// Returns a buffer. Its address is null if no buffer is free or if the client already holds its share.
  PoolBuffer acquire(std::size_t bytes) noexcept {
    PoolBuffer buffer = side_.acquire_buffer(bytes);
    if (!buffer.is_record || buffer.address == nullptr) return buffer;
    const std::uint32_t share = larger_of(side_.config().record_buffers / kShareOfRecords, 2u);
    if (records_held_ < share) return ++records_held_, buffer;
    return side_.release_buffer(buffer), PoolBuffer{};
  }
  void release(PoolBuffer& buffer) noexcept {
    if (buffer.address == nullptr) return;
    SLUICE_INVARIANT_DEBUG(!buffer.is_record || records_held_ > 0, pool_balance);
    if (buffer.is_record) --records_held_;
    side_.release_buffer(buffer);
  }
  std::uint32_t records_held() const noexcept { return records_held_; }

  /// Returns where the reply message is kept: in its Reply chunk, after the call's Write chunks, or in the
  /// call's own buffer if the call has no Write chunks and the reply is short. Returns an empty span if no
  /// memory is available.
  std::span<std::byte> keep_message(ClientCall& call, const rpcrdma::Reply& reply) noexcept;

 private:
  ServerSide& side_;
  std::uint32_t records_held_ = 0;
};

/// Binding for programs without eligible items, and for calls whose items only the server can decode
/// (V1-175).
inline constexpr service::Binding kNoBinding{};

/// Sets the program, version, procedure and binding of a call. `binding` is the program's binding, or null if
/// it has none.
inline void identify(ClientCall& call, const rpc::CallHeader& header,
                     const service::Binding* binding) noexcept {
  call.program = header.program;
  call.version = header.version;
  call.procedure = header.procedure;
  call.binding = binding == nullptr || rpc::is_wrapped(header.credential) ? &kNoBinding : binding;
}

/// A client's call that is ready to be submitted.
struct OutgoingCall {
  const rpc::CallHeader& header;
  std::span<std::byte> message;
  std::size_t arguments_at = 0;  ///< offset in `message`
  std::optional<rdma::Lkey>
      lkey{};  ///< of `message`, which stays valid until the reply; without it, a reduced call is copied
               ///< first
  std::uint64_t reply_room =
      std::numeric_limits<std::uint64_t>::max();  ///< bytes of the longest reply that the client can take
};

enum class Submission : std::uint8_t {
  NoMemory,   ///< no memory now; the caller frees the call and retries later
  Submitted,  ///< inline
  Reduced,    ///< reduced; the server reads arguments from `message` or from its copy
  Refused,    ///< the connection cannot carry the call
};

/// Submits an identified call to its connection. Acquires the memory that the server reads and writes, offers
/// it as chunks, removes requests for withheld features, and ends the call at an unknown operation. The reply
/// bound for a call with integrity protection is computed as for any other call, but none of its results is
/// eligible. A call with privacy protection may have a reply of any size.
Submission submit_call(ClientCall& call, const OutgoingCall& outgoing, ServerSide& side,
                       ClientBuffers& buffers) noexcept;

/// Sets the call's items to the reply's eligible results if any were placed or if names_items is set.
/// `message` is the reply message, which stays in place until it is sent: the sizes that it announces are
/// capped there, withheld features are removed, and `side` records both changes. Returns false and sets
/// nothing if the message and the placed data are inconsistent.
bool read_reply(ClientCall& call, const rpcrdma::Reply& reply, std::span<std::byte> message,
                ServerSide& side) noexcept;

/// Sets the call's pieces to the reply for TCP, without the XID. Call after read_reply().
void assemble_reply(ClientCall& call, std::span<const std::byte> message) noexcept;

}  // namespace sluice::rdma_server
