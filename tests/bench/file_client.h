// SPDX-License-Identifier: Apache-2.0
//
// A client of one of the Reactors, with a file and a loop for each kind of call. The constructor polls the
// reactors, and later the caller does. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tests/bench/file_calls.h"
#include "tests/bench/reactors.h"

namespace sluice::bench {

inline constexpr std::size_t kFileCallKinds = static_cast<std::size_t>(FileCall::Remove) + 1;

struct FileClientConfig {
  std::uint32_t reactor = 0;
  std::uint32_t depth = 64;
  double timeout_s = 10;
};

class FileClient {
 public:
  using Loop = ClosedLoop<FileCalls>;

  /// Connects. `reactors` outlives the object.
  FileClient(Reactors& reactors, const FileClientConfig& config)
      : reactors_(reactors),
        config_(config),
        client_(
            reactors.fabric(),
            {.port = Reactors::port(config.reactor), .depth = config.depth, .timeout_s = config.timeout_s},
            [](void* client) { static_cast<FileClient*>(client)->connect(); }, this),
        memory_(client_.device().allocate_memory(std::size_t{config.depth} * FileCalls::kBlockBytes)) {
    names_ = {.root = reactors.root(),
              .file = "file" + std::to_string(config.reactor),
              .handle = {},
              .prefix = "name" + std::to_string(config.reactor) + '-'};
    make_file();
    for (std::size_t kind = 0; kind < kFileCallKinds; ++kind)
      loops_[kind] = make_loop(static_cast<FileCall>(kind), names_);
  }

  Loop& loop(FileCall kind) { return *loops_[static_cast<std::size_t>(kind)]; }
  /// Lets another thread use the client from now on.
  void pass_on() { client_.client().engine().pass_on(); }
  const FileNames& names() const { return names_; }
  /// Uses another file for all calls but WRITE, CREATE and REMOVE.
  void read_from(const FileNames& names) {
    for (std::size_t kind = 0; kind < static_cast<std::size_t>(FileCall::Write4k); ++kind)
      loops_[kind] = make_loop(static_cast<FileCall>(kind), names);
  }

 private:
  std::unique_ptr<Loop> make_loop(FileCall kind, const FileNames& names) {
    return std::make_unique<Loop>(client_.client(), FileCalls(kind, names, memory_), config_.depth);
  }
  void poll_reactors() {
    for (std::uint32_t i = 0; i < reactors_.count(); ++i) reactors_.poll(i);
  }
  void connect() {
    reactors_.control_pass(config_.reactor);
    reactors_.poll(config_.reactor);
  }
  /// Creates the file and writes its blocks.
  void make_file() {
    FileNames names = names_;
    names.prefix = names_.file;
    Loop create(client_.client(), FileCalls(FileCall::Create, names, memory_), 1);
    create.run(1, [this] { poll_reactors(); });
    names_.handle = create.calls().created();
    names_.file += '0';  // number of the first name that CREATE makes
    make_loop(FileCall::Write4k, names_)->run(FileCalls::kBlocks, [this] { poll_reactors(); });
  }

  Reactors& reactors_;
  const FileClientConfig config_;
  ClientOfThread client_;
  rdma::MemoryRegion memory_;
  FileNames names_;
  std::array<std::unique_ptr<Loop>, kFileCallKinds> loops_;
};

}  // namespace sluice::bench
