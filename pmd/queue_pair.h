// SPDX-License-Identifier: Apache-2.0
//
// One end of a reliable connection (RC). Only the reactor that owns its device may call. The device must
// outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "pmd/memory.h"
#include "pmd/rc_attributes.h"
#include "pmd/work_request.h"

namespace sluice::rdma {

/// Sizes and retry limits of a queue pair, chosen at creation.
struct QueuePairLimits {
  std::uint32_t send_depth = 256;  ///< work requests
  std::uint32_t recv_depth = 256;  ///< work requests
  std::uint32_t max_send_sge = 16;
  std::uint8_t initiator_depth = 16;  ///< our outstanding RDMA Reads; further ones wait in the queue
  std::uint8_t rnr_retry = 7;         ///< 7 means unlimited
  ProtectionDomain domain{};          ///< from Device::allocate_domain()
  friend bool operator==(const QueuePairLimits&, const QueuePairLimits&) = default;
};

class QueuePair {
 public:
  enum class State : std::uint8_t {
    Init,         ///< Receives may be posted; connection management is not finished
    ReadyToSend,  ///< connected
    Error,        ///< everything outstanding is being flushed
  };

  virtual ~QueuePair() = default;
  virtual QueuePairNumber number() const noexcept = 0;
  virtual State state() const noexcept = 0;

  /// Posts work requests from the front while the queue has room and returns their number. In State::Init it
  /// posts none. In State::Error it posts them, and they complete with WrFlushError.
  virtual std::size_t post_send(std::span<const SendWr> wrs) noexcept = 0;
  /// Posts Receives like post_send(), but also in State::Init.
  virtual std::size_t post_recv(std::span<const RecvWr> wrs) noexcept = 0;
  /// Returns the number of free entries of the send queue.
  virtual std::size_t send_room() const noexcept = 0;

  /// Binds `window` to `bytes` inside the region of `lkey` with remote access, ordered before everything
  /// posted later; it reaches the device with the next post_send() or Device::poll(). Returns the new,
  /// unpredictable rkey, or nullopt if the send queue is full or the device refuses (is_broken()). Remote
  /// offsets are the virtual addresses of `bytes`. A bound window must be invalidated first (BindError
  /// otherwise).
  virtual std::optional<Rkey> bind_window(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                          AccessFlags access) noexcept = 0;

  /// Starts to register `bytes`, inside the region of `lkey`, as a region with remote access, in the
  /// protection domain of the queue pair. The work completion, of WcOpcode::RegisterRegion, has the new rkey,
  /// or status BindError if the device refuses. Work requests posted before that completion must not name the
  /// region. Returns false if `window` is in use or the queue pair is not connected. Only for devices without
  /// memory windows (DeviceLimits::max_call_regions). The end of the queue pair ends the access.
  virtual bool register_region(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey, AccessFlags access,
                               std::uint64_t wr_id) noexcept {
    static_cast<void>(window), static_cast<void>(bytes), static_cast<void>(lkey);
    static_cast<void>(access), static_cast<void>(wr_id);
    return false;
  }
  /// Starts to deregister the region of `window`. The work completion, of WcOpcode::LocalInvalidate and only
  /// with kSignaled, comes when the peer can no longer access it and all regions before it. Returns false if
  /// the queue pair has no such region.
  virtual bool deregister_region(MemoryWindow window, std::uint64_t wr_id, std::uint8_t flags) noexcept {
    static_cast<void>(window), static_cast<void>(wr_id), static_cast<void>(flags);
    return false;
  }

  /// Moves to State::Error. Outstanding work requests are flushed through Device::poll() once the peer can no
  /// longer access the memory.
  virtual void to_error() noexcept = 0;

  /// Connects: Init to ReadyToSend, either immediately or in a later Device::poll(), and to Error if the
  /// device refuses. For drivers without a connection manager. Returns false if the attributes are invalid or
  /// the driver has a connection manager.
  virtual bool connect(const RcAttributes& attributes) noexcept {
    static_cast<void>(attributes);
    return false;
  }
  /// Reports whether a message from the peer has arrived, which establishes the connection even if the peer's
  /// ready-to-use message was lost (InfiniBand 12.9.7.2, communication established).
  virtual bool heard_from_peer() const noexcept { return false; }
  /// Reports whether the device has ended the connection: its provider refused a work request, or it reported
  /// an error or was removed. Then work requests are flushed although neither side closed the connection.
  virtual bool is_broken() const noexcept { return false; }
};

}  // namespace sluice::rdma
