// SPDX-License-Identifier: Apache-2.0
//
// Connection management by the driver itself. The reactor that owns the device is the only thread that may
// call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/net_address.h"
#include "pmd/queue_pair.h"

namespace sluice::rdma {

/// Connection management as the driver does it itself (loopback). That of softroce and verbs is done by the
/// control plane: they have none.
enum class CmEventType : std::uint8_t { ConnectRequest, Established, Rejected, Disconnected };

/// One side's handle of a connection, being set up or established.
enum class CmId : std::uint32_t {};

struct CmEvent {
  CmEventType type = CmEventType::ConnectRequest;
  CmId id{};
  std::uint16_t port = 0;    ///< ConnectRequest
  PeerAddress peer_address;  ///< ConnectRequest
  std::uint8_t private_data_bytes = 0;
  std::byte private_data[kMaxPrivateData]{};
};

/// The processes at the other ends, of a driver whose connections stay on one machine: for a control plane
/// that cleans up after one that has died.
class PeerProcesses {
 public:
  /// Of the connecting side; zero when unknown.
  virtual std::uint32_t pid(CmId id) const noexcept = 0;
  /// Gives up the other side's share of a connection whose process has died.
  virtual void abandon(CmId id) noexcept = 0;

 protected:
  ~PeerProcesses() = default;
};

class ConnectionManager {
 public:
  virtual ~ConnectionManager() = default;
  /// Null when peers are not processes of this machine. Lives as long as the manager.
  virtual PeerProcesses* peer_processes() noexcept { return nullptr; }
  virtual void listen(std::uint16_t port) = 0;
  /// Starts a connection for `qp` (in Init, Receives posted); ends in Established or Rejected.
  virtual std::optional<CmId> connect(QueuePair& qp, std::uint16_t port,
                                      std::span<const std::byte> private_data) noexcept = 0;
  /// Answers a ConnectRequest. The queue pair has its Receives posted; it is ReadyToSend on Established.
  virtual bool accept(CmId id, QueuePair& qp, std::span<const std::byte> private_data) noexcept = 0;
  virtual void reject(CmId id, std::span<const std::byte> private_data) noexcept = 0;
  /// Ends a connection; both sides get Disconnected and their queue pairs go to Error.
  virtual void disconnect(CmId id) noexcept = 0;
  /// At most events.size() events; bounded work.
  virtual std::size_t poll_events(std::span<CmEvent> events) noexcept = 0;
};

}  // namespace sluice::rdma
