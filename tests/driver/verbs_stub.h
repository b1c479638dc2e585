// SPDX-License-Identifier: Apache-2.0
//
// Stub of an RDMA device: the functions of libibverbs that the verbs driver calls, and a model of a provider
// behind them (verbs_models.h). There is one device, and each ibv_open_device() returns a context of its own.
// Work requests complete immediately, or when the test says so. Queue pairs that are connected to a queue
// pair of the device move data with the checks of InfiniBand, and a Send waits for a Receive. The peers of
// all other queue pairs are remote: an RDMA Read from such a peer returns remote_byte(). Any thread may call
// the functions; the test reads the records while no other thread does.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/driver/verbs_models.h"

namespace sluice::rdma::conformance {

/// A completion queue. The first member is what the driver has a pointer to.
struct StubQueue {
  ibv_cq_ex cq{};
  std::deque<ibv_wc> completions;
  ibv_wc current{};  ///< completion that the extended interface reads
};

/// A shared receive queue. The first member is what the driver has a pointer to.
struct StubReceives;

/// The vendor_err of failed work requests, except flushed ones.
inline constexpr std::uint32_t kVendorError = 0x52;

class VerbsStub {
 public:
  static VerbsStub& get();
  ~VerbsStub() {
    for (Window* const window : windows_) delete window;  // those of keep_windows()
  }

  /// Returns the byte of a remote peer's memory at this address.
  static std::byte remote_byte(std::uint64_t address) {
    return static_cast<std::byte>(address * 7 + address / 256 + 3);
  }

  struct Posted {
    std::uint64_t wr_id = 0;
    std::uint32_t queue_pair = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    bool signaled = false;
    std::uint32_t bytes = 0;
    bool inlined = false;
    std::vector<ibv_sge> sges{};
    std::uint32_t rkey = 0;       ///< RDMA, invalidation and bind
    std::uint32_t immediate = 0;  ///< network byte order
    std::uint64_t remote_address = 0;
    ibv_mw* window = nullptr;
    ibv_mw_bind_info bind{};
  };

  /// Behaves as this provider from now on. No device may be open.
  void select(const Provider& provider);
  const Provider& provider() const noexcept { return provider_; }
  /// Hides the device's folder in sysfs, as a container may.
  void hide_sysfs(bool hide);

  /// Work requests posted after this call are not acknowledged.
  void lose_peer() noexcept { peer_gone_ = true; }
  /// Acknowledges all work requests, and those posted after this call.
  void find_peer();
  /// Accepts `count` more work requests and refuses those behind them. The classic interface accepts the part
  /// of a chain before the refused one, the extended interface nothing of a batch.
  void refuse_posts_after(std::size_t count);
  void accept_posts();
  /// Queue pairs created from now on have the extended interface, if the driver wants it.
  void provide_extended(bool provide);
  /// Simulates exhausted retries: the oldest work request fails and the others are flushed.
  void give_up();
  /// Work requests of queue pairs whose peers are remote.
  const std::vector<Posted>& posted() const noexcept { return posted_; }
  std::uint32_t queue_pairs();
  /// Attributes with which the last queue pair was connected.
  const ibv_qp_attr& attributes() const noexcept { return attributes_; }
  /// Address vector of the last queue pair that was connected.
  const ibv_ah_attr& address_vector() const noexcept { return address_vector_; }
  /// Raises an asynchronous event; `queue_pair` is its number if the event belongs to one.
  void raise(ibv_event_type type, std::uint32_t queue_pair = 0);
  /// Sets the last octet of the port's address in 192.0.2.0/24.
  void set_address(std::uint8_t last);
  /// Sets the length of the port's GID table. Its entries from `first_roce_v2` on are of RoCEv2, with
  /// consecutive addresses that begin with the port's.
  void set_gids(std::size_t count, std::size_t first_roce_v2) {
    gids_ = count;
    first_roce_v2_ = first_roce_v2;
  }
  /// Sets the interfaces of link-local GIDs with one address, which are at the end of the port's GID table.
  void set_link_local(const std::vector<std::uint32_t>& interfaces) { link_local_ = interfaces; }
  const std::vector<std::uint32_t>& link_local() const { return link_local_; }
  /// Refuses registrations of memory with this error number; zero accepts them.
  void refuse_memory(int error) noexcept { memory_error_ = error; }
  int memory_error() const noexcept { return memory_error_; }
  /// Refuses to deallocate windows.
  void keep_windows(bool keep) noexcept { keeps_windows_ = keep; }
  bool keeps_windows() const noexcept { return keeps_windows_; }
  /// Refuses to open the device with this error number; zero opens it.
  void refuse_open(int error) noexcept { open_error_ = error; }
  int open_error() const noexcept { return open_error_; }
  /// Sets the number of devices, at most one.
  void set_devices(int count) noexcept { devices_ = count; }
  int devices() const noexcept { return devices_; }
  /// Ends the process in this function, as a provider does whose function is null.
  enum class Function : std::uint8_t { None, Poll, Query };
  void clear_function(Function function) noexcept { cleared_ = function; }
  bool is_cleared(Function function) const noexcept { return cleared_ == function; }
  /// Is an iWARP device from now on, or one of RoCE.
  void set_iwarp(bool iwarp);
  /// Blocks threads that move a queue pair to Error while `hold` is true, as a slow device does.
  void hold_errors(bool hold);
  /// Delivers a message of no bytes to a queue pair, in a shared Receive.
  void deliver(std::uint32_t queue_pair);
  /// Takes a shared Receive for such a message, which completes once the queue pair is in Error and an
  /// asynchronous event is taken: the device has not finished its work when the queue pair is moved.
  void deliver_late(std::uint32_t queue_pair);
  std::size_t shared_receives();
  /// Gives the peer of a queue pair access to memory, as a peer with windows would, although the provider has
  /// none. Returns the rkey, which ends with the queue pair.
  std::uint32_t expose(std::uint32_t queue_pair, std::span<std::byte> bytes, unsigned access);
  /// Delays IBV_EVENT_QP_LAST_WQE_REACHED until the second query of asynchronous events.
  void delay_last_receives(bool delay);
  /// Sets the QPN of the next queue pair.
  void set_next_number(std::uint32_t number);
  void refuse_queue_pairs(bool refuse);
  struct Registered {
    const std::byte* at = nullptr;
    std::size_t bytes = 0;
    int access = 0;  ///< ibv_access_flags
  };
  const std::vector<Registered>& registered() const noexcept { return registered_; }
  /// Returns the number of registered regions that begin at this address.
  std::size_t regions_at(const std::byte* address);
  /// Blocks threads that register memory while `hold` is true, as a slow device does.
  void hold_registrations(bool hold);
  void await_registrations();
  /// Sets how much inline data the provider supports; more is refused.
  void take_inline(std::uint32_t bytes) noexcept { provider_.max_inline = bytes; }
  std::uint32_t refused() const noexcept { return refused_; }
  /// True if the last queue pair was created for one thread.
  bool made_for_one_thread() const noexcept { return for_one_thread_; }
  /// Number of existing thread domains and protection domains in them.
  std::uint32_t domains_of_threads();
  /// Records the calling thread's calls outside of the data path from now on.
  void watch_this_thread();
  void watch_no_thread();
  /// Their names.
  const std::vector<std::string>& noted() const noexcept { return noted_; }
  std::uint32_t windows_made();

  // Called by the functions of libibverbs.
  ibv_context* open();
  void close(ibv_context* context);
  bool take_event(ibv_context* context, ibv_async_event& event);
  void acknowledge(const ibv_async_event& event);
  std::uint8_t address();
  std::size_t gids() const { return gids_; }
  std::size_t first_roce_v2() const { return first_roce_v2_; }
  /// Called by every function outside of the data path.
  void note(const char* function);
  ibv_mw* make_window(ibv_pd* pd);
  ibv_mr* add_region(ibv_pd* pd, void* at, std::size_t bytes, int access);
  int post(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** refused);
  // The extended interface (verbs_stub_extended.cc).
  ibv_qp* make_extended(const ibv_qp_init_attr_ex& wanted);
  void stage(const ibv_qp_ex& qp, Posted posted);
  /// Adds data to the work request staged last.
  void add_data(const ibv_sge& data, bool inlined);
  int post_staged(const ibv_qp_ex& qp);
  void abort_staged(const ibv_qp_ex& qp);
  StubQueue* make_queue(ibv_context* context, std::uint32_t entries);
  ibv_cq_ex* make_extended_queue(ibv_context* context, std::uint32_t entries);
  void destroy_queue(ibv_cq* queue);
  int poll(StubQueue& queue, int count, ibv_wc* into);
  int take(StubQueue& queue, int count, ibv_wc* into);
  ibv_qp* make(ibv_pd* pd, const ibv_qp_init_attr& wanted);
  ibv_td* make_thread_domain(ibv_context* context);
  ibv_pd* make_domain_of(const ibv_parent_domain_init_attr& wanted);
  void forget_domain(const void* domain);
  void destroy(ibv_qp* qp);
  void destroy_window(ibv_mw* window);
  void remove_region(ibv_mr* region);
  void post(ibv_qp* qp, ibv_recv_wr* first);
  ibv_srq* make_shared(ibv_pd* pd);
  void post_shared(ibv_srq* queue, ibv_recv_wr* first);
  void destroy_shared(ibv_srq* queue);
  /// Records the attributes of a connection. Flushes the Receives of a queue pair that moves to Error.
  void modify(const ibv_qp& qp, const ibv_qp_attr& attributes, int mask);

 private:
  struct Pair {
    ibv_qp_ex qp{};  ///< what the driver has a pointer to
    StubQueue* sends = nullptr;
    StubQueue* receives = nullptr;
    StubReceives* shared = nullptr;
    std::uint32_t peer = 0;      ///< QPN
    bool has_peer_here = false;  ///< the peer was a queue pair of this device
    std::uint8_t rnr_retry = 0;
    bool in_error = false;
    bool flushes = false;  ///< in Error, and work requests are flushed
    std::deque<Posted> posted_receives{};
    std::deque<Posted> waiting{};  ///< the first one is a message that waits for a Receive of the peer
  };
  struct Window {
    ibv_mw mw{};  ///< what the driver has a pointer to
    std::uint32_t rkey = 0;
    std::uint32_t queue_pair = 0;  ///< QPN of the queue pair to which it is bound; zero if it is not bound
    ibv_mw_bind_info bound{};
    bool of_peer = false;  ///< of expose()
  };

  Pair* peer_of(const Pair& pair);
  Window* window_at(std::uint32_t rkey, std::uint32_t queue_pair);
  void complete(const Posted& posted, ibv_wc_status status);
  void complete_receive(Pair& pair, const Posted& receive, ibv_wc wc);
  void execute(const Posted& posted);
  void progress(Pair& pair);
  void progress_all();
  bool reads_memory(const Posted& posted) const;
  bool needs_receive(const Posted& posted) const;
  /// Returns the own or the shared Receives of a queue pair.
  std::deque<Posted>& receives_of(Pair& pair);
  bool are_of_one_domain(const ibv_pd* one, const ibv_pd* other) const;
  bool covered(const Pair& pair, const std::vector<ibv_sge>& sges) const;
  ibv_wc_status transfer(Pair& pair, const Posted& posted);
  ibv_wc_status invalidate(Pair& pair, std::uint32_t rkey);
  ibv_wc_status send(Pair& peer, const Posted& posted);
  ibv_wc_status access(Pair& peer, const Posted& posted);
  bool is_allowed(const Window& window, const Posted& posted) const;
  /// Reports whether the rkey is that of a region with remote access.
  bool is_in_region(const Pair& peer, const Posted& posted) const;
  ibv_wc_status bind(const Posted& posted);
  void scatter(const Posted& posted, std::uint64_t at, bool remote) const;
  void move_to_error(Pair& pair);
  void flush(Pair& pair);
  void add_event(ibv_event_type type, Pair& pair);
  void add_event(ibv_context* context, const ibv_async_event& event);
  /// Returns whether the provider accepts one more work request, and counts it.
  bool accepts_one();
  bool accepts(const Posted& posted) const;

  std::mutex lock_;
  Provider provider_ = kFullProvider;
  std::thread::id watched_;
  std::vector<std::string> noted_;
  std::uint32_t windows_made_ = 0;
  std::map<ibv_context*, std::deque<ibv_async_event>> events_;  ///< of open contexts
  std::map<const ibv_qp*, std::uint32_t> unacknowledged_;       ///< taken events of each queue pair
  std::condition_variable acknowledged_;
  std::map<std::uint32_t, Pair> pairs_;  ///< by QPN
  std::set<StubQueue*> queues_;
  std::set<Window*> windows_;
  std::map<std::uint32_t, ibv_mr*> regions_;  ///< by lkey
  std::map<std::uint32_t, int> rights_;       ///< ibv_access_flags of regions, by lkey
  std::set<const void*> domains_of_threads_;
  std::map<const void*, const void*> parents_;  ///< of protection domains of threads
  bool for_one_thread_ = false;
  std::uint8_t address_ = 1;
  std::size_t gids_ = 1;
  std::size_t first_roce_v2_ = 0;
  std::vector<std::uint32_t> link_local_;
  std::atomic<int> memory_error_{0};
  std::atomic<bool> holds_registrations_{false};
  std::atomic<int> open_error_{0};
  std::atomic<int> devices_{1};
  std::atomic<Function> cleared_{Function::None};
  std::atomic<bool> keeps_windows_{false};
  std::uint32_t refused_ = 0;
  std::vector<Registered> registered_;
  std::vector<Posted> posted_;
  std::vector<Posted> staged_;  ///< extended interface, of all queue pairs
  std::deque<Posted> outstanding_;
  std::set<StubReceives*> shared_;
  std::set<std::uint32_t> unflushed_;  ///< QPNs that are flushed with the next asynchronous event
  std::set<std::uint32_t> unreached_;  ///< QPNs whose last Receive is reported with the next query of events
  std::vector<Posted> late_;           ///< of deliver_late()
  ibv_qp_attr attributes_{};
  ibv_ah_attr address_vector_{};
  std::uint32_t next_number_ = 0x100;
  std::uint32_t next_key_ = 1;
  bool peer_gone_ = false;
  std::optional<std::size_t> accepts_;  ///< work requests that are accepted; empty: all
  bool refuses_ = false;
  bool delays_last_receives_ = false;
  std::atomic<bool> holds_errors_{false};
};

struct StubReceives {
  ibv_srq srq{};
  std::deque<VerbsStub::Posted> receives;
};

}  // namespace sluice::rdma::conformance
