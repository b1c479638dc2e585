// SPDX-License-Identifier: Apache-2.0
//
// Objects that the reactors of a process own: each has a Core, and the first one has the files of the memory
// exports, which the other reactors read.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/gateway/rdma_upstream/relay.h"
#include "dataplane/gateway/slots/upstream_slots.h"
#include "dataplane/gateway/tcp_clients/reverse_gateway.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/process/devices.h"
#include "dataplane/process/export_update.h"
#include "dataplane/reactor/reactor.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/api/null.h"
#include "dataplane/service/cross_reactor_call.h"
#include "dataplane/service/memory/file_reader.h"
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

/// Memory exports of a reactor that does not own the files: it answers what changes nothing, and forwards all
/// other calls to the owner.
class ReadExports final : public reactor::ControlTask {
 public:
  /// Registers the services with `reader` at setup. `data` and `zeros` are the owner's regions. Throws
  /// SetupError. The owner's service and both reactors outlive the object.
  ReadExports(Core& reader, service::memory::MemoryService& memory, rdma::MemoryRegion data,
              rdma::MemoryRegion zeros);
  ReadExports(const ReadExports&) = delete;
  ReadExports& operator=(const ReadExports&) = delete;

  service::CrossReactorCall& calls() noexcept { return *calls_; }
  ExportUpdate& update() noexcept { return update_; }
  const service::memory::FileReader& files() const noexcept { return *files_; }
  /// Applies an offered list. Called in the reader's thread.
  void on_control_pass(std::uint64_t now_ns) noexcept override;

 private:
  std::unique_ptr<service::CrossReactorCall> calls_;
  std::unique_ptr<service::RemoteService> to_owner_;
  std::unique_ptr<service::RemoteService> acl_;
  std::unique_ptr<service::memory::FileReader> files_;
  ExportUpdate update_;
};

/// Memory exports. The files belong to one reactor.
class Exports final : public reactor::ControlTask {
 public:
  /// Creates the exports at setup. Throws SetupError. Registers the services with the owner, unless the
  /// configuration serves no files from memory. The owner and the layout outlive the exports; `wall_clock`
  /// returns nanoseconds since 1970.
  Exports(const segment::ConfigBlock& config, Core& owner, segment::Layout& layout,
          service::memory::FileSystem::Clock wall_clock);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  /// Serves the connections of another reactor, unless the configuration serves no files from memory. Called
  /// at setup. The reader outlives the exports.
  void serve(Core& reader);

  /// Returns the transfer objects, the owner's first. A list that is offered there is applied at the next
  /// control pass of the reactor.
  std::vector<ExportUpdate*> updates() noexcept;
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
  const bool serves_memory_;  ///< the configuration serves files from memory
  ExportUpdate update_;
  std::uint64_t published_ns_ = 0;
  service::memory::PathWalk walk_{memory_.file_system()};
  bool walking_ = false;
  std::uint64_t question_ = 0;           ///< number of the last PathQuestion that was handled
  std::uint32_t question_sequence_ = 0;  ///< sequence of its SeqLock when it was read
  std::vector<std::unique_ptr<ReadExports>> readers_;
};

}  // namespace sluice::process
