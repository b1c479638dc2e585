// SPDX-License-Identifier: Apache-2.0
//
// The memory exports. They belong to one reactor; the others hand it their calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/process/core.h"
#include "dataplane/service/handover.h"
#include "dataplane/service/memory/memory_service.h"
#include "dataplane/service/memory/path_walk.h"

namespace sluice::process {

/// One list of exports at a time, from the thread that made it to the reactor and back. The giver owns it
/// throughout; the reactor has it between take() and give_back().
class ExportUpdate {
 public:
  using List = std::vector<service::memory::ExportOptions>;

  /// The main thread. The list before has come back.
  void offer(List& exports) noexcept { offered_.store(&exports, std::memory_order_release); }
  /// The main thread: the list that is no longer in use, holding the exports that were in force before; null
  /// while the reactor has not come to it.
  List* take_back() noexcept { return returned_.exchange(nullptr, std::memory_order_acquire); }

  /// The reactor: what is offered, or null.
  List* take() noexcept { return offered_.exchange(nullptr, std::memory_order_acquire); }
  void give_back(List& exports) noexcept { returned_.store(&exports, std::memory_order_release); }

 private:
  std::atomic<List*> offered_{nullptr};
  std::atomic<List*> returned_{nullptr};
};

class Exports final : public reactor::ControlTask {
 public:
  /// Setup; throws SetupError. Registers the services with the owner, unless the configuration serves no
  /// files from memory. The owner and the layout outlive the exports; `wall_clock` gives nanoseconds since
  /// 1970.
  Exports(const segment::ConfigBlock& config, Core& owner, segment::Layout& layout,
          service::memory::FileSystem::Clock wall_clock);
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  /// Setup: the owner serves calls of the borrower's connections. The borrower outlives the exports.
  void lend_to(Core& borrower);

  /// Lists that are offered here come into force with the next control pass.
  ExportUpdate& update() noexcept { return update_; }
  /// The owner's thread: takes what is offered, publishes what the exports hold from time to time,
  /// and answers questions of MOUNT about directories.
  void on_control_pass(std::uint64_t now_ns) noexcept override;

 private:
  segment::ExportInfo info(std::uint32_t number) noexcept;
  void publish(std::uint64_t now_ns) noexcept;
  void answer_mount() noexcept;
  void start_walk() noexcept;

  segment::Layout& layout_;
  Core& owner_;
  const rdma::MemoryRegion data_;
  const rdma::MemoryRegion zeros_;  ///< what holes of files are read from
  service::memory::MemoryService memory_;
  std::vector<service::Service*> served_;
  ExportUpdate update_;
  std::uint64_t published_ns_ = 0;
  service::memory::PathWalk walk_{memory_.file_system()};
  bool walking_ = false;
  std::uint64_t question_ = 0;           ///< number of the last question that was taken
  std::uint32_t question_sequence_ = 0;  ///< of its sequence lock
  std::vector<std::unique_ptr<service::Handover>> handovers_;
  std::vector<std::unique_ptr<service::BorrowedService>> borrowed_;
};

}  // namespace sluice::process
