// SPDX-License-Identifier: Apache-2.0
//
// Objects that the reactors of a process own: each has a Core, and the first one has the memory exports, to
// which the other reactors forward their calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/gateway/rdma_upstream/relay.h"
#include "dataplane/gateway/slots/upstream_slots.h"
#include "dataplane/gateway/tcp_clients/reverse_gateway.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/process/devices.h"
#include "dataplane/reactor/reactor.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/api/null.h"
#include "dataplane/service/cross_reactor_call.h"
#include "dataplane/service/memory/memory_service.h"
#include "dataplane/service/memory/path_walk.h"

namespace sluice::process {

/// One reactor and everything that it polls. The main thread constructs it; after run() starts, everything in
/// it belongs to the reactor's thread.
struct Core {
  /// Objects that all cores of a process share.
  struct Shared {
    tcp_clients::Listener* listener = nullptr;           ///< null without the reverse gateway
    const tcp_upstream::DuplicateRequestCaches& caches;  ///< caches of the upstreams; outlive the core
  };
  /// Builds a reactor at setup. Throws SetupError. `devices`, the listener, `layout` and the
  /// data that `clock` reads outlive the core.
  Core(const segment::ConfigBlock& config, std::uint32_t number, Devices& devices, const Shared& shared,
       segment::Layout& layout, Clock clock);

  void make_slots(const segment::ConfigBlock& config, segment::ReactorArea& area,
                  const segment::SharedUpstreamAddresses& addresses,
                  const tcp_upstream::DuplicateRequestCaches& caches, Clock clock);

  // Built in order and destroyed in reverse.
  std::unique_ptr<rdma::Device> device;
  rpcrdma::Engine engine;
  service::NullService null;
  tcp_upstream::CreditLimits credits;                  ///< credit limits that upstreams set for clients
  std::unique_ptr<tcp_upstream::Upstreams> upstreams;  ///< null if no upstream can be reached over TCP
  reactor::Reactor reactor;
  std::vector<Owned<rdma_upstream::Relay>> relays;               ///< for upstreams over RDMA
  std::unique_ptr<gateway::UpstreamSlots> slots;                 ///< null without upstreams
  std::unique_ptr<tcp_clients::ReverseGateway> reverse_gateway;  ///< null without the reverse gateway
};

/// Transfer of one list of exports at a time from the main thread to the reactor and back. The main thread
/// owns the list throughout; the reactor uses it between take() and give_back().
class ExportUpdate {
 public:
  using List = std::vector<service::memory::ExportOptions>;

  /// Offers a list to the reactor. Requires that the previous list has been returned. Main thread. Pairs with
  /// take(): the list is complete.
  void offer(List& exports) noexcept { offered_.store(&exports, std::memory_order_release); }
  /// Returns the list that the reactor no longer uses, with the previously applied exports; null while the
  /// reactor has not handled it. Main thread. Pairs with give_back(): the previously applied exports.
  List* take_back() noexcept { return returned_.exchange(nullptr, std::memory_order_acquire); }

  /// Returns the offered list; null if there is none. Reactor. Pairs with offer(): the list is complete.
  List* take() noexcept { return offered_.exchange(nullptr, std::memory_order_acquire); }
  /// Returns the list to the main thread. Reactor. Pairs with take_back(): the previously applied exports.
  void give_back(List& exports) noexcept { returned_.store(&exports, std::memory_order_release); }

 private:
  std::atomic<List*> offered_{nullptr};
  std::atomic<List*> returned_{nullptr};
};

/// Memory exports. They belong to one reactor; the other reactors forward their calls to it.
class Exports final : public reactor::ControlTask {
 public:
  /// Creates the exports at setup. Throws SetupError. Registers the services with the owner, unless the
  /// configuration serves no files from memory. The owner and the layout outlive the exports; `wall_clock`
  /// returns nanoseconds since 1970.
  Exports(const segment::ConfigBlock& config, Core& owner, segment::Layout& layout,
          service::memory::FileSystem::Clock wall_clock);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  /// Lets the owner serve calls of the caller's connections. Called at setup. The caller outlives the
  /// exports.
  void serve_remotely(Core& caller);

  /// Returns the transfer object. A list that is offered there is applied at the next control pass.
  ExportUpdate& update() noexcept { return update_; }
  /// Applies an offered list, publishes the state of the exports periodically, and looks up directories for
  /// MOUNT. Called in the owner's thread.
  void on_control_pass(std::uint64_t now_ns) noexcept override;

 private:
  segment::ExportInfo info(std::uint32_t number) noexcept;
  void publish(std::uint64_t now_ns) noexcept;
  void answer_mount() noexcept;
  void start_walk() noexcept;

  segment::Layout& layout_;
  Core& owner_;
  const rdma::MemoryRegion data_;
  const rdma::MemoryRegion zeros_;  ///< source of reads from holes of files
  service::memory::MemoryService memory_;
  std::vector<service::Service*> served_;
  ExportUpdate update_;
  std::uint64_t published_ns_ = 0;
  service::memory::PathWalk walk_{memory_.file_system()};
  bool walking_ = false;
  std::uint64_t question_ = 0;           ///< number of the last PathQuestion that was handled
  std::uint32_t question_sequence_ = 0;  ///< sequence of its SeqLock when it was read
  std::vector<std::unique_ptr<service::CrossReactorCall>> cross_reactor_calls_;
  std::vector<std::unique_ptr<service::RemoteService>> remote_services_;
};

}  // namespace sluice::process
