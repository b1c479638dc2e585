// SPDX-License-Identifier: Apache-2.0
//
// A verbs device of one reactor (see verbs.h). Only that reactor may call, except for look() and probe(),
// which one other thread calls; the members below context_lock_ are shared with it. Owns the ibv context and
// everything created from it; outlives its queue pairs. Setup throws SetupError.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "dataplane/base/fixed_ring.h"
#include "dataplane/base/setup_error.h"
#include "pmd/verbs/completion_queue.h"
#include "pmd/verbs/memory.h"
#include "pmd/verbs/queue_pair.h"
#include "pmd/verbs/shared_receives.h"
#include "pmd/verbs/verbs.h"

namespace sluice::rdma::verbs {

/// Asynchronous events handled per look().
inline constexpr std::size_t kEventsPerLook = 64;

class VerbsDevice final : public Verbs {
 public:
  explicit VerbsDevice(const DeviceConfig& config);
  ~VerbsDevice() override;

  const std::string& name() const noexcept override { return name_; }
  DeviceLimits limits() const noexcept override { return limits_; }
  MemoryRegion allocate_memory(std::size_t bytes) override { return memory_.allocate(bytes); }
  MemoryRegion register_memory(std::span<std::byte> bytes) override { return memory_.add(bytes); }
  MemoryWindow allocate_window() override { return memory_.allocate_window(); }
  std::unique_ptr<QueuePair> create_queue_pair(const QueuePairLimits& limits) override;
  ConnectionManager* connection_manager() noexcept override { return nullptr; }
  std::span<const PeerAddress> addresses() const noexcept override { return addresses_; }
  std::uint16_t max_path_mtu() const noexcept override { return max_path_mtu_; }
  std::size_t read_statistics(std::span<std::uint64_t> values) const noexcept override;
  std::size_t poll(std::span<WorkCompletion> completions) noexcept override;
  void wait(std::uint64_t limit_ns) noexcept override;
  bool wakes() const noexcept override { return channel_ != nullptr; }

  void look() noexcept override;
  void probe(QueuePairNumber number) noexcept override;
  Condition condition() const noexcept override { return condition_.load(std::memory_order_relaxed); }
  const std::string& device_name() const noexcept override { return config_.device; }
  Statistics statistics() const noexcept override;
  bool has_extended_posting() const noexcept override { return extended_posting_; }
  bool has_extended_polling() const noexcept override { return extended_polling_; }

  // For queue pairs.
  struct Slot {
    VerbsQueuePair* qp = nullptr;
    std::uint16_t generation = 0;
  };
  /// Assigns a free slot; throws SetupError if there is none.
  Slot& assign_slot(VerbsQueuePair& qp, std::uint16_t& number);
  void release_slot(VerbsQueuePair& qp) noexcept;
  /// Null: queue pairs have their own Receives.
  SharedReceives* shared_receives() noexcept { return shared_.get(); }
  /// The queue pair is about to be destroyed: recovers the shared Receives that it has consumed.
  void take_completions_of(VerbsQueuePair& qp, CompletionQueue& queue) noexcept;
  /// A completion queue with `entries` reserved in it. Throws SetupError.
  CompletionQueue& completion_queue(std::uint32_t entries);
  // Setup: a queue pair with `depth` work requests is created or destroyed.
  void add_depth(std::size_t depth);
  void remove_depth(std::size_t depth) noexcept { depth_ -= depth; }
  /// Room for flushed completions: limits what may be posted to a queue pair in Error.
  std::size_t completion_room() const noexcept { return flushed_.capacity() - flushed_.size(); }
  ibv_pd* protection_domain() noexcept { return pd_; }
  ibv_context* context() noexcept { return context_; }
  const ibv_device_attr& attributes() const noexcept { return attributes_; }
  std::uint8_t port() const noexcept { return config_.port; }
  bool prefers_extended() const noexcept { return prefers_extended_; }
  bool in_software() const noexcept { return in_software_; }
  void note_posting(bool extended) noexcept { extended_posting_ = extended; }
  MemoryTable& memory() noexcept { return memory_; }
  Statistics& stats() noexcept { return statistics_; }
  void complete(const WorkCompletion& completion) noexcept;
  void forget_completions_of(QueuePairNumber qp) noexcept {
    flushed_.erase_if([qp](const WorkCompletion& completion) { return completion.qp == qp; });
  }
  void add_staged(VerbsQueuePair& qp) noexcept { staged_.push_back(&qp); }
  void remove_staged(VerbsQueuePair& qp) noexcept;
  /// While completions are polled: move the queue pair to Error afterwards.
  void add_failed(VerbsQueuePair& qp) noexcept { failed_.push_back(&qp); }
  /// Index of the RoCEv2 GID with this address; nullopt: the port has none.
  std::optional<std::uint8_t> gid_index(const PeerAddress& local) noexcept;

 private:
  enum class Request : std::uint8_t { None, LookAtQueuePairs, Detach, Attach };

  void attach();
  void detach() noexcept;
  void handle_request() noexcept;
  void read_gids();
  void on_event(const ibv_async_event& event) noexcept;
  bool is_present() const noexcept;
  void close_context() noexcept;
  void on_completion(const Completion& completion) noexcept;
  void on_shared_receive(std::uint32_t index, const Completion& completion) noexcept;
  void make_channel() noexcept;
  void request(Request wanted) noexcept;

  DeviceConfig config_;
  std::string name_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;  ///< null: not supported, so that wait() only sleeps
  bool armed_ = false;                   ///< completion queues are armed, and were polled since
  std::string node_path_;                ///< exists as long as the device does
  ibv_device_attr attributes_{};
  DeviceLimits limits_{};
  std::uint16_t max_path_mtu_ = 1024;
  bool in_software_ = false;
  bool prefers_extended_ = false;
  bool extended_posting_ = false;
  bool extended_polling_ = false;
  std::vector<ibv_gid_entry> gids_;
  std::vector<PeerAddress> addresses_;
  MemoryTable memory_;
  std::unique_ptr<SharedReceives> shared_;
  std::unordered_map<std::uint32_t, std::uint16_t> slots_by_number_;  ///< by QPN; only with shared Receives
  std::vector<std::unique_ptr<CompletionQueue>> completion_queues_;
  std::size_t next_queue_ = 0;
  std::vector<Slot> slots_;
  std::vector<VerbsQueuePair*> staged_;
  std::vector<VerbsQueuePair*> failed_;
  /// Completions for the next poll(); capacity for everything that can be outstanding.
  FixedRing<WorkCompletion> flushed_;
  std::size_t depth_ = 0;  ///< sum over all queue pairs
  /// While poll() runs: its output.
  std::span<WorkCompletion> room_;
  std::size_t room_used_ = 0;
  Statistics statistics_;

  // Shared by the reactor and the thread that calls look() and probe().
  std::mutex context_lock_;  ///< protects `context_`; poll() and look() only try to lock it
  std::atomic<Request> request_{Request::None};
  std::atomic<Condition> condition_{Condition::Up};
  std::vector<std::atomic<std::uint32_t>> numbers_;  ///< by slot: QPN
  std::vector<std::atomic<std::uint32_t>> ended_;    ///< by slot: QPN that an asynchronous event has ended
  std::vector<std::atomic<std::uint32_t>> probed_;   ///< by slot: QPN to be probed
  std::atomic<std::uint64_t> queue_pair_events_{0};
  std::atomic<std::uint64_t> overruns_{0};
  std::atomic<std::uint64_t> port_down_{0};
  std::atomic<std::uint64_t> port_up_{0};
};

}  // namespace sluice::rdma::verbs
