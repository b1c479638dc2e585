// SPDX-License-Identifier: Apache-2.0
//
// A loopback device and its connection management (loopback.h). Only the owning reactor may call; the other
// side of a link runs in another thread or process and is reached through the fabric only. The
// device shares ownership of the fabric and must outlive its queue pairs. Errors: SetupError from setup,
// null or nullopt otherwise.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "dataplane/base/thread_owner.h"
#include "pmd/common/region_table.h"
#include "pmd/loopback/queue_pair.h"

namespace sluice::rdma::loopback {

class LoopbackDevice;

/// Connection management over the state words of the fabric's links. Each transition is made by one side
/// only.
class LoopbackCm final : public ConnectionManager {
 public:
  LoopbackCm(Fabric& fabric, std::uint32_t device) noexcept : fabric_(fabric), device_(device) {}
  ~LoopbackCm() override;

  void listen(std::uint16_t port) override;
  std::optional<CmId> connect(QueuePair& qp, std::uint16_t port,
                              std::span<const std::byte> private_data) noexcept override;
  bool accept(CmId id, QueuePair& qp, std::span<const std::byte> private_data) noexcept override;
  void reject(CmId id, std::span<const std::byte> private_data) noexcept override;
  void disconnect(CmId id) noexcept override;
  std::uint32_t peer_pid(CmId id) const noexcept override;
  std::size_t poll_events(std::span<CmEvent> events) noexcept override;

  /// Drops the queue pair's side of its link, if any. Called when the queue pair is destroyed.
  void release_link(const LoopbackQueuePair& qp) noexcept;
  Link* link_of(CmId id) const noexcept;

 private:
  /// This device's state of a link that it uses.
  struct Local {
    bool mine = false;
    std::uint32_t side = 0;
    std::uint32_t generation = 0;
    LinkState reported = LinkState::Free;
    bool disconnect_reported = false;
    LoopbackQueuePair* qp = nullptr;
  };

  CmId id_of(std::uint32_t link) const noexcept;
  std::optional<std::uint32_t> number_of(CmId id) const noexcept;
  std::optional<std::uint32_t> listener(std::uint16_t port) noexcept;
  bool check_link(std::uint32_t number, CmEvent& event) noexcept;
  bool check_as_acceptor(std::uint32_t number, CmEvent& event) noexcept;
  bool check_as_connector(std::uint32_t number, CmEvent& event) noexcept;
  void fill(CmEvent& event, CmEventType type, std::uint32_t number, std::uint32_t from_side) noexcept;
  void set_private_data(Link& link, std::uint32_t side, std::span<const std::byte> data) noexcept;
  void ring(Link& link, std::uint32_t side) noexcept;
  void drop_request(std::uint32_t number) noexcept;
  void withdraw(std::uint32_t number, CmEvent& event) noexcept;
  void set_device(Link& link, std::uint32_t side, std::uint32_t device) noexcept;
  bool peer_is_gone(std::uint32_t number) const noexcept;
  void give_up_for_peer(std::uint32_t number) noexcept;

  Fabric& fabric_;
  const std::uint32_t device_;
  std::uint32_t seen_doorbell_ = 0;
  std::uint32_t next_link_ = 0;
  std::uint32_t next_listener_ = 0;
  bool more_ = false;  ///< the last scan reported events: the next poll scans without a doorbell
  std::array<Local, kMaxLinks> local_{};
};

class LoopbackDevice final : public Loopback {
 public:
  LoopbackDevice(std::shared_ptr<Fabric> fabric, const DeviceConfig& config);
  ~LoopbackDevice() override;

  const std::string& name() const noexcept override { return config_.name; }
  DeviceLimits limits() const noexcept override;
  MemoryRegion allocate_memory(std::size_t bytes) override;
  MemoryRegion register_memory(std::span<std::byte> bytes) override;
  MemoryWindow allocate_window() override;
  Owned<QueuePair> create_queue_pair(const QueuePairLimits& limits) override;
  ConnectionManager* connection_manager() noexcept override { return &cm_; }
  void handle_events() noexcept override { fabric_->look_for_peers(); }
  void pass_on() noexcept override { owner_.pass_on(); }
  std::size_t poll(std::span<WorkCompletion> completions) noexcept override;
  const Statistics& statistics() const noexcept override { return statistics_; }
  DeviceConfig& config() noexcept override { return config_; }

  // Interface for queue pairs.
  Fabric& fabric() noexcept { return *fabric_; }
  LoopbackCm& cm() noexcept { return cm_; }
  Statistics& stats() noexcept { return statistics_; }
  std::uint32_t number() const noexcept { return number_; }
  void remove(LoopbackQueuePair& qp) noexcept;
  void on_moved() noexcept { moved_ = true; }
  bool local_access(const Sge& sge) const noexcept { return regions_.covers(sge); }
  std::vector<const LoopbackQueuePair*>& window_owners() noexcept { return window_owners_; }
  Rkey next_rkey(std::uint32_t window) noexcept;
  /// Returns the offset of `bytes` in this device's arena, or nullopt if they lie outside it. Zero within one
  /// process.
  std::optional<std::uint64_t> arena_offset(std::span<const std::byte> bytes) noexcept;

 private:
  std::shared_ptr<Fabric> fabric_;
  DeviceConfig config_;
  const std::uint32_t number_;
  LoopbackCm cm_;
  Statistics statistics_;
  SteeringTags tags_;
  RegionTable regions_{"loopback", tags_};
  std::vector<const LoopbackQueuePair*> window_owners_;
  std::vector<LoopbackQueuePair*> queue_pairs_;
  std::size_t next_polled_ = 0;
  std::uint32_t next_qpn_ = 1;
  std::uint64_t arena_used_ = 0;
  ThreadOwner owner_;  ///< thread that polls
};

}  // namespace sluice::rdma::loopback
