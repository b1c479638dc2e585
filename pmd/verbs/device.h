// SPDX-License-Identifier: Apache-2.0
//
// A verbs device of one reactor (see verbs.h). Only that reactor may call, except for handle_events(), which
// one other thread calls; both threads share the members after context_lock_. While the set-up thread
// attaches or detaches the device, the provider's objects belong to it. At other times both threads only read
// them. Owns the ibv context and everything created from it; outlives its queue pairs. Setup throws
// SetupError.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "pmd/verbs/call_regions.h"
#include "pmd/verbs/completion_queue.h"
#include "pmd/verbs/memory.h"
#include "pmd/verbs/notices.h"
#include "pmd/verbs/provider.h"
#include "pmd/verbs/queue_pair.h"
#include "pmd/verbs/setup_thread.h"
#include "pmd/verbs/shared_receives.h"
#include "pmd/verbs/states.h"
#include "pmd/verbs/verbs.h"

namespace sluice::rdma::verbs {

/// Number of asynchronous events handled per handle_events().
inline constexpr std::size_t kEventsPerLook = 64;
/// Time limit for IBV_EVENT_QP_LAST_WQE_REACHED. Devices raise it within microseconds.
inline constexpr std::uint64_t kLastReceiveLimitNs = 20'000'000;
/// Number of queue pairs without that event after which a device that has never raised it is known not to.
inline constexpr std::uint32_t kLastReceiveMisses = 3;
/// Number of QPNs remembered that have had that event.
inline constexpr std::size_t kLastReceives = 64;
/// Number of queue pairs created in advance, so that this many connections can start before the device has
/// created another queue pair.
inline constexpr std::uint32_t kReadyQueuePairs = 16;
/// Number of completions that a region for a call can have in the queue of completions.
inline constexpr std::size_t kCompletionsPerRegion = 2;
/// Number of slots for queue pairs of closing connections whose successors are already open.
inline constexpr std::uint32_t kSpareSlots = 16;

class VerbsDevice final : public Verbs {
 public:
  explicit VerbsDevice(const DeviceConfig& config);
  ~VerbsDevice() override;

  const std::string& name() const noexcept override { return name_; }
  DeviceLimits limits() const noexcept override { return port_.limits; }
  MemoryRegion allocate_memory(std::size_t bytes) override { return memory_.allocate(bytes); }
  MemoryRegion register_memory(std::span<std::byte> bytes) override { return memory_.add(bytes); }
  MemoryWindow allocate_window() override;
  ProtectionDomain allocate_domain() override;
  void prepare_queue_pairs(const QueuePairLimits& limits, std::uint32_t count) override;
  bool has_queue_pair() const noexcept override;
  Owned<QueuePair> create_queue_pair(const QueuePairLimits& limits) override;
  ConnectionManager* connection_manager() noexcept override { return nullptr; }
  std::span<const PeerAddress> addresses() const noexcept override { return port_.addresses; }
  std::uint16_t max_path_mtu() const noexcept override { return port_.max_path_mtu; }
  std::size_t read_statistics(std::span<std::uint64_t> values) const noexcept override;
  std::size_t poll(std::span<WorkCompletion> completions) noexcept override;
  void wait(std::uint64_t limit_ns) noexcept override;
  bool wakes() const noexcept override { return presence_.is(Presence::Attached) && channel_ != nullptr; }

  void handle_events() noexcept override;
  Notice take_notice(std::string& sentence) override { return notices_.take(name_, sentence); }
  Condition condition() const noexcept override { return condition_.load(std::memory_order_relaxed); }
  const std::string& device_name() const noexcept override { return config_.device; }
  Statistics statistics() const noexcept override;
  bool has_extended_posting() const noexcept override { return extended_posting_; }
  bool has_extended_polling() const noexcept override { return extended_polling_; }

  // Interface for queue pairs.
  /// Requests the registration of a region for a call. Returns false if it is in use.
  bool register_region(MemoryWindow window, VerbsQueuePair& qp,
                       const CallRegions::Registration& registration) noexcept;
  bool deregister_region(MemoryWindow window, VerbsQueuePair& qp, std::uint64_t wr_id,
                         bool signaled) noexcept;
  CallRegions& call_regions() noexcept { return call_regions_; }
  void ask(SetupStep step, std::uint16_t slot) noexcept;
  /// Moves the ibv_qp to Error.
  void fail(std::uint16_t slot) noexcept;
  /// Requests the destruction of the ibv_qp. Its windows can be bound again later.
  void end(VerbsQueuePair& qp) noexcept;
  /// Ends the queue pair. `await` means that its work requests are outstanding, so that its ibv_qp is
  /// destroyed before this function returns.
  void release(VerbsQueuePair& qp, bool await) noexcept;
  /// Returns null if queue pairs have their own Receives.
  SharedReceives* shared_receives() noexcept { return shared_.get(); }
  // Setup. Called when a queue pair with `depth` work requests is created or destroyed.
  void add_depth(std::size_t depth);
  void remove_depth(std::size_t depth) noexcept {
    static_cast<void>(SLUICE_INVARIANT(depth <= depth_, ring_index));
    depth_ -= depth;
  }
  /// Returns the free space for flushed completions, which limits the work requests that may be posted to a
  /// queue pair in Error.
  std::size_t completion_room() const noexcept {
    const std::size_t used = flushed_.size() + kCompletionsPerRegion * call_regions_.size();
    return flushed_.capacity() > used ? flushed_.capacity() - used : 0;
  }
  /// Returns the protection domain for queue pairs of this domain.
  ibv_pd* protection_domain(ProtectionDomain domain) const noexcept {
    if (domain != ProtectionDomain{}) return memory_.domain(domain);
    return of_thread_ != nullptr ? of_thread_ : pd_;
  }
  ibv_context* context() const noexcept { return context_; }
  /// Returns null if queue pairs have their own Receives.
  ibv_srq* shared_receive_queue() const noexcept { return shared_ ? shared_->handle() : nullptr; }
  const ibv_device_attr& attributes() const noexcept { return attributes_; }
  std::uint8_t port() const noexcept { return config_.port; }
  bool prefers_extended_posting() const noexcept {
    return config_.interface == Interface::Extended ||
           (config_.interface == Interface::Newest && provider_->extended_posting);
  }
  bool prefers_extended_polling() const noexcept {
    return config_.interface == Interface::Extended ||
           (config_.interface == Interface::Newest && provider_->extended_polling);
  }
  bool in_software() const noexcept { return provider_->in_software; }
  /// Returns zero if RDMA Reads are limited by the send queue only.
  std::uint32_t max_posted_reads() const noexcept { return provider_->max_posted_reads; }
  MemoryTable& memory() noexcept { return memory_; }
  Statistics& stats() noexcept { return statistics_; }
  void complete(const WorkCompletion& completion) noexcept;
  void add_notice(const Notices::Failure& failure) noexcept { notices_.add(failure); }
  void forget_completions_of(QueuePairNumber qp) noexcept {
    flushed_.erase_if([qp](const WorkCompletion& completion) { return completion.qp == qp; });
  }
  void add_staged(VerbsQueuePair& qp) noexcept {
    SLUICE_INVARIANT_DEBUG(staged_.size() < slots_.size(), list_membership);
    staged_.push_back(&qp);
  }
  void remove_staged(VerbsQueuePair& qp) noexcept;
  /// Moves the queue pair to Error after the completions are polled. Called while polling.
  void add_failed(VerbsQueuePair& qp) noexcept {
    static_cast<void>(SLUICE_INVARIANT(failed_.size() < slots_.size(), list_membership));
    failed_.push_back(&qp);
  }
  /// Returns the index of the RoCEv2 GID with this address, or nullopt if the port has none.
  std::optional<std::uint8_t> gid_index(const PeerAddress& local) const noexcept;

  // Interface for the set-up thread.
  /// Attaches a device that has returned. Returns false if it has not returned yet.
  bool attach_again() noexcept;
  /// Waits until a queue pair in Error has taken its last shared Receive, so that the completions of all of
  /// them can be polled before the queue pair is destroyed. Returns after kLastReceiveLimitNs at the latest.
  void await_last_receive(std::uint32_t queue_pair) noexcept;
  bool destroy(ibv_qp* qp) noexcept;
  /// Closes the device. Requires that all its queue pairs were destroyed.
  void detach() noexcept;

 private:
  /// Result of attach(), for the reactor.
  struct Port {
    DeviceLimits limits;
    std::vector<PeerAddress> addresses;
    std::uint16_t max_path_mtu = 1024;
    std::string capabilities;  ///< Capabilities::summary
  };
  struct Slot {
    VerbsQueuePair* qp = nullptr;  ///< null if created in advance or released
    std::uint16_t generation = 0;
    SlotMachine phase;
    std::uint64_t failed_ns = 0;  ///< monotonic time at which the queue pair was moved to Error
  };
  enum class Request : std::uint8_t { None, TakeEvents, Detach, Attach };

  void attach();
  std::uint32_t max_read_sge() const noexcept;
  Port port_of(const ibv_port_attr& port);
  void take_port() noexcept { port_ = std::exchange(attached_port_, {}); }
  void leave() noexcept;
  void on_attached(bool done) noexcept;
  void detach_if_left() noexcept;
  void poll_queues() noexcept;
  void handle_request() noexcept;
  // Creation of queue pairs in advance (queue_pair_slots.cc).
  std::uint16_t begin_make(const QueuePairLimits& limits, CompletionQueue& queue) noexcept;
  std::uint16_t take_ready(const QueuePairLimits& limits);
  void make_ahead() noexcept;
  void throw_refusal();
  void make_queues(std::uint32_t entries);
  Owned<CompletionQueue> largest_queue(std::uint32_t least, std::uint32_t most);
  CompletionQueue& make_queue(std::uint32_t entries);
  void await_step() noexcept { handle(setup_.await()); }
  void await_steps() noexcept {
    while (steps_asked_ > 0) await_step();
  }
  void handle(const SetupResult& result) noexcept;
  void take(const SetupResult& result) noexcept;
  void on_made(std::uint16_t slot, bool done) noexcept;
  void on_failed(std::uint16_t slot, bool done) noexcept;
  void on_destroyed(std::uint16_t slot) noexcept;
  void take_region(const SetupResult& result) noexcept;
  void end_regions(const VerbsQueuePair& qp) noexcept;
  void grow_completions();
  void end(std::uint16_t slot) noexcept;
  void destroy(std::uint16_t slot) noexcept;
  void free_slot(std::uint16_t slot) noexcept;
  void end_all() noexcept;
  /// Returns the number of completion queue entries for a queue pair. Shared Receives are not counted.
  std::uint32_t entries_for(const QueuePairLimits& limits) const noexcept;
  /// Returns a completion queue after reserving `entries` in it, or null if none has enough free entries.
  CompletionQueue* completion_room(std::uint32_t entries) noexcept;
  /// Returns a completion queue after reserving `entries` in it, creating a queue if necessary. Throws
  /// SetupError.
  CompletionQueue& completion_queue(std::uint32_t entries);
  void take_events() noexcept;
  void on_event(const ibv_async_event& event) noexcept;
  void apply_events() noexcept;
  void check_flushes() noexcept;
  bool has_last_receive(std::uint32_t queue_pair) noexcept;
  bool is_present() const noexcept;
  void close_context() noexcept;
  void on_completion(const Completion& completion) noexcept;
  void on_shared_receive(std::uint32_t index, const Completion& completion) noexcept;
  void make_channel() noexcept;
  void make_thread_domain() noexcept;
  void request(Request wanted) noexcept;

  DeviceConfig config_;
  std::string name_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  // Thread domain, or null if the provider has none. With a thread domain, posting takes no lock and has its
  // own doorbell, because only the reactor posts.
  ibv_td* thread_domain_ = nullptr;
  ibv_pd* of_thread_ = nullptr;          ///< parent domain of pd_ and thread_domain_
  ibv_comp_channel* channel_ = nullptr;  ///< null if not supported; then wait() only sleeps
  /// True if the completion queues are armed and were polled since. This flag is not a state, because it
  /// changes with each sleep of an attached device.
  bool armed_ = false;
  std::string node_path_;  ///< exists as long as the device does
  ibv_device_attr attributes_{};
  const Provider* provider_ = &kUnknownProvider;
  // Interfaces of the last queue pair and of the last completion queue. These flags are not states, because
  // they stay as they are while the device is away.
  bool extended_posting_ = false;
  bool extended_polling_ = false;
  PresenceMachine presence_;  ///< used by the reactor only
  Port port_;                 ///< used by the reactor only
  Port attached_port_;
  MemoryTable memory_;
  CallRegions call_regions_;
  Owned<SharedReceives> shared_;
  std::unordered_map<std::uint32_t, std::uint16_t> slots_by_number_;  ///< by QPN; only with shared Receives
  std::vector<Owned<CompletionQueue>> completion_queues_;
  std::size_t next_queue_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint16_t> free_slots_;
  std::optional<QueuePairLimits> prepared_;  ///< limits of the queue pairs created in advance
  std::vector<std::uint16_t> ready_;         ///< slots of queue pairs created in advance and not used yet
  std::uint32_t ready_wanted_ = 0;
  std::uint32_t making_ = 0;
  std::uint32_t steps_asked_ = 0;  ///< steps of the set-up thread whose results were not handled
  std::string refusal_;  ///< reason of the last failed creation; the next create_queue_pair() throws it
  std::vector<VerbsQueuePair*> staged_;
  std::vector<VerbsQueuePair*> failed_;
  /// Completions for the next poll(), with capacity for everything that can be outstanding.
  FixedRing<WorkCompletion> flushed_;
  std::size_t depth_ = 0;  ///< sum over all queue pairs
  /// Output of the running poll().
  std::span<WorkCompletion> room_;
  std::size_t room_used_ = 0;
  Statistics statistics_;
  Notices notices_;

  // Shared by the reactor and the thread that calls handle_events().
  std::mutex context_lock_;  ///< protects `context_`; poll() and handle_events() only try to lock it
  std::vector<PeerAddress>
      changed_addresses_;  ///< guarded by context_lock_; for the reactor; empty if unchanged
  // Guarded by context_lock_: QPNs whose last shared Receive was reported, and whether the device reports it.
  std::array<std::uint32_t, kLastReceives> last_receives_{};
  std::size_t last_receives_added_ = 0;
  std::uint32_t last_receive_misses_ = 0;
  /// True if queue pairs in Error may have outstanding work requests. This flag is not a state, because it
  /// sums up the slots for the thread that calls handle_events().
  std::atomic<bool> awaits_flush_{false};
  std::atomic<Request> request_{Request::None};
  std::atomic<Condition> condition_{Condition::Up};
  std::vector<std::atomic<std::uint32_t>> numbers_;  ///< by slot: QPN
  std::vector<std::atomic<std::uint32_t>> ended_;    ///< by slot: QPN for which an asynchronous event
                                                     ///< reported an error
  std::atomic<std::uint64_t> queue_pair_events_{0};
  std::atomic<std::uint64_t> overruns_{0};
  std::atomic<std::uint64_t> shared_receive_errors_{0};
  std::atomic<std::uint64_t> port_down_{0};
  std::atomic<std::uint64_t> port_up_{0};

  SetupThread setup_;
};

}  // namespace sluice::rdma::verbs
