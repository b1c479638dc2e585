// SPDX-License-Identifier: Apache-2.0
//
// Connection management implemented by a driver. Only the reactor that owns the device may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/net_address.h"
#include "pmd/queue_pair.h"

namespace sluice::rdma {

/// Only loopback has a ConnectionManager. For softroce and verbs the control plane does connection
/// management.
enum class CmEventType : std::uint8_t { ConnectRequest, Established, Rejected, Disconnected };

/// Handle of one side of a connection that is being set up or is established.
enum class CmId : std::uint32_t {};

struct CmEvent {
  CmEventType type = CmEventType::ConnectRequest;
  CmId id{};
  std::uint16_t port = 0;    ///< ConnectRequest
  PeerAddress peer_address;  ///< ConnectRequest
  /// Private data of ConnectRequest, of Rejected, and of Established on the connecting side. Messages of
  /// InfiniBand connection management have fields of fixed size, so zeros may follow the data that the peer
  /// passed.
  std::uint8_t private_data_bytes = 0;
  std::byte private_data[kMaxPrivateData]{};
};

class ConnectionManager {
 public:
  virtual ~ConnectionManager() = default;
  /// Setup. Throws SetupError.
  virtual void listen(std::uint16_t port) = 0;
  /// Starts to connect `qp`, which is in Init with its Receives posted. The result is Established or
  /// Rejected. Returns nullopt if resources are exhausted. After connect() and accept() the queue pair must
  /// exist at each poll_events() until disconnect() is called.
  virtual std::optional<CmId> connect(QueuePair& qp, std::uint16_t port,
                                      std::span<const std::byte> private_data) noexcept = 0;
  /// Accepts a ConnectRequest. Returns false if the request no longer exists; a withdrawn request is reported
  /// as Disconnected. The queue pair has its Receives posted and is ReadyToSend on Established.
  virtual bool accept(CmId id, QueuePair& qp, std::span<const std::byte> private_data) noexcept = 0;
  /// Rejects a ConnectRequest. The reject may be lost on the wire, and then the request arrives again with
  /// another id.
  virtual void reject(CmId id, std::span<const std::byte> private_data) noexcept = 0;
  /// Closes the connection. Each side gets Disconnected once, the caller only if its queue pair exists; the
  /// peer's queue pair goes to Error. An invalid id has no effect.
  virtual void disconnect(CmId id) noexcept = 0;
  /// Returns the process of the connecting side, or zero if it is unknown or on another machine.
  virtual std::uint32_t peer_pid(CmId id) const noexcept {
    static_cast<void>(id);
    return 0;
  }
  /// Writes up to events.size() events and returns their number. Bounded work.
  virtual std::size_t poll_events(std::span<CmEvent> events) noexcept = 0;
};

}  // namespace sluice::rdma
