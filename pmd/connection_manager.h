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

/// One side's handle of a connection that is being set up or is established.
enum class CmId : std::uint32_t {};

struct CmEvent {
  CmEventType type = CmEventType::ConnectRequest;
  CmId id{};
  std::uint16_t port = 0;    ///< ConnectRequest
  PeerAddress peer_address;  ///< ConnectRequest
  /// Of ConnectRequest, Established at the connecting side, and Rejected. Messages of InfiniBand's connection
  /// management have fields of fixed size: zeros may follow what was given.
  std::uint8_t private_data_bytes = 0;
  std::byte private_data[kMaxPrivateData]{};
};

class ConnectionManager {
 public:
  virtual ~ConnectionManager() = default;
  /// Setup. Throws SetupError.
  virtual void listen(std::uint16_t port) = 0;
  /// Starts connecting `qp` (in Init, Receives posted); ends in Established or Rejected. nullopt: no
  /// resources. Here and in accept(): the queue pair is there at each poll_events() until disconnect() is called.
  virtual std::optional<CmId> connect(QueuePair& qp, std::uint16_t port,
                                      std::span<const std::byte> private_data) noexcept = 0;
  /// Accepts a ConnectRequest. False: it is no longer there; a withdrawn one is reported as Disconnected. The
  /// queue pair has its Receives posted; it is ReadyToSend on Established.
  virtual bool accept(CmId id, QueuePair& qp, std::span<const std::byte> private_data) noexcept = 0;
  /// A refusal may be lost on the wire: then the request comes again, with another id.
  virtual void reject(CmId id, std::span<const std::byte> private_data) noexcept = 0;
  /// Both sides get Disconnected, once, the caller if its queue pair is there; the peer's goes to Error. Invalid: nothing.
  virtual void disconnect(CmId id) noexcept = 0;
  /// The connecting side's process; zero when it is not of this machine, or unknown.
  virtual std::uint32_t peer_pid(CmId id) const noexcept {
    static_cast<void>(id);
    return 0;
  }
  /// Returns up to events.size() events. Bounded work.
  virtual std::size_t poll_events(std::span<CmEvent> events) noexcept = 0;
};

}  // namespace sluice::rdma
