// SPDX-License-Identifier: Apache-2.0
//
// Reactors over the loopback driver, as in one process: the first one owns the files of a memory export, and
// the others read them and hand over the calls that change files. Each reactor belongs to the thread that
// polls it.
#pragma once

#include <rte_cycles.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/service/cross_reactor_call.h"
#include "dataplane/service/memory/file_reader.h"
#include "dataplane/service/memory/memory_service.h"
#include "tests/bench/polled_server.h"

namespace sluice::bench {

struct ReactorsConfig {
  std::uint32_t reactors = 2;
  std::uint16_t connections = 2;   ///< per reactor
  std::uint32_t call_slots = 128;  ///< per connection
};

class Reactors {
 public:
  explicit Reactors(const ReactorsConfig& config)
      : fabric_(rdma::loopback::Fabric::in_process(
            {.links = 2 * config.reactors * std::uint32_t{config.connections}})),
        owner_(fabric_, server(config, 0)),
        data_(owner_.device().allocate_memory(64u << 20)),
        zeros_(owner_.device().allocate_memory(service::memory::kLargeBytes + 64)),
        memory_(data_, zeros_, exports(), &now_ns) {
    owner_.engine().add_service(memory_);
    for (std::uint32_t i = 1; i < config.reactors; ++i) {
      callers_.push_back(std::make_unique<Caller>(fabric_, server(config, i)));
      callers_.back()->serve(memory_, data_, zeros_);
    }
    for (std::uint32_t i = 0; i < config.reactors; ++i) reactor(i).start(&tsc);
  }
  Reactors(const Reactors&) = delete;
  Reactors& operator=(const Reactors&) = delete;

  /// Returns the port of a reactor.
  static std::uint16_t port(std::uint32_t i) { return static_cast<std::uint16_t>(kFirstPort + i); }
  const std::shared_ptr<rdma::loopback::Fabric>& fabric() const { return fabric_; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(1 + callers_.size()); }
  std::vector<std::byte> root() const {
    const auto handle = memory_.root_handle(0);
    return {handle.begin(), handle.end()};
  }

  /// Runs one iteration of a reactor.
  void poll(std::uint32_t i) noexcept {
    reactor(i).poll();
    if (i > 0) {
      callers_[i - 1]->calls->collect();
      return;
    }
    for (const auto& caller : callers_) caller->calls->serve();
  }
  /// Does the periodic work of a reactor.
  void control_pass(std::uint32_t i) {
    reactor(i).poll_cm();
    if (i == 0)
      background();
    else
      callers_[i - 1]->files->background(owner_.time_ns());
  }
  /// Does the periodic work of the files. Thread of the first reactor.
  void background() noexcept { memory_.background(owner_.time_ns()); }
  /// Lets another thread poll a reactor from now on.
  void pass_on(std::uint32_t i) noexcept { reactor(i).pass_on(); }

 private:
  static constexpr std::uint16_t kFirstPort = 20049;

  /// A reactor that reads the files of the first one.
  struct Caller {
    Caller(std::shared_ptr<rdma::loopback::Fabric> fabric, const PolledServerConfig& config)
        : server(std::move(fabric), config) {}
    void serve(service::memory::MemoryService& memory, const rdma::MemoryRegion& data,
               const rdma::MemoryRegion& zeros) {
      const service::memory::FileReader::Keys keys{
          .data = server.device().register_memory(data.bytes).lkey,
          .zeros = server.device().register_memory(zeros.bytes).lkey};
      std::vector<service::CrossReactorCall::KeyPair> pairs{{data.lkey, keys.data}, {zeros.lkey, keys.zeros}};
      calls =
          std::make_unique<service::CrossReactorCall>(std::move(pairs), server.engine().connection_count());
      to_owner = std::make_unique<service::RemoteService>(*calls, memory);
      files = std::make_unique<service::memory::FileReader>(memory, *to_owner, keys);
      server.engine().add_service(*files);
    }

    PolledServer server;
    std::unique_ptr<service::CrossReactorCall> calls;
    std::unique_ptr<service::RemoteService> to_owner;
    std::unique_ptr<service::memory::FileReader> files;
  };

  static std::uint64_t tsc() noexcept { return rte_rdtsc(); }
  static PolledServerConfig server(const ReactorsConfig& config, std::uint32_t i) {
    return {.name = "reactor" + std::to_string(i),
            .port = port(i),
            .connections = config.connections,
            .call_slots = config.call_slots};
  }
  static service::memory::MemoryServiceConfig exports() {
    service::memory::MemoryServiceConfig config{.max_files = 4000, .handle_key = {}, .exports = {}};
    config.exports = {{.path = "/", .root_squash = false, .allowed = {}}};
    return config;
  }
  PolledServer& reactor(std::uint32_t i) noexcept { return i == 0 ? owner_ : callers_[i - 1]->server; }

  const std::shared_ptr<rdma::loopback::Fabric> fabric_;
  PolledServer owner_;
  const rdma::MemoryRegion data_;
  const rdma::MemoryRegion zeros_;
  service::memory::MemoryService memory_;
  std::vector<std::unique_ptr<Caller>> callers_;
};

}  // namespace sluice::bench
