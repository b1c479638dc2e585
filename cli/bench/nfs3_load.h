// SPDX-License-Identifier: Apache-2.0
//
// NFSv3 load: a file of known content, and a mix of operations on it. Runs on the client's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/client.h"
#include "cli/interrupt.h"
#include "dataplane/base/fixed_containers.h"
#include "dataplane/segment/histogram.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::bench {

using Handle = std::vector<std::byte>;

enum class Operation : std::uint8_t { Null, GetAttr, Lookup, Read, Write };
inline constexpr std::size_t kOperations = 5;
const char* to_string(Operation operation);

struct LoadConfig {
  std::array<std::uint32_t, kOperations> weights{};  ///< by Operation; zero means never
  std::uint32_t block_bytes = 4096;
  std::uint64_t file_bytes = 16u << 20;
  std::uint32_t seed = 1;
  bool verify = false;
  double seconds = 2;
  std::uint64_t max_operations = 0;  ///< maximum number of operations; zero means limited by time only
  double calls_per_s = 0;            ///< maximum rate over all connections; zero means that only the number
                                     ///< of outstanding calls limits the rate
};

struct LoadResult {
  double seconds = 0;
  std::uint64_t operations = 0;
  std::array<std::uint64_t, kOperations> by_operation{};
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t errors = 0;
  std::uint64_t verified_bytes = 0;
  std::uint64_t mismatches = 0;
};

/// Keeps `depth` calls outstanding on each session, or fewer at a given rate. A call that is due while all
/// slots are in use is made as soon as a call is answered.
class Load {
 public:
  /// Creates a load. Registers memory for depth * connections blocks. `root` is the directory for the file.
  Load(Client& client, const LoadConfig& config, std::uint32_t depth, Handle root);
  ~Load();

  /// Creates the file and fills it with the content that the seed determines.
  void prepare();
  LoadResult run(void (*progress)(const LoadResult&) = nullptr);
  void clean_up();
  const segment::Histogram& latency() const { return *latency_; }

 private:
  struct Task {
    Load* load = nullptr;
    rpcrdma::Requester* requester = nullptr;
    Operation operation{};
    std::uint64_t offset = 0;
    std::uint64_t started_ns = 0;
    std::span<std::byte> buffer;
  };

  void start_due(std::uint64_t begin);
  std::uint64_t due(std::uint64_t begin) const noexcept;
  bool start(Task& task);
  bool start_io(Task& task);
  static rpcrdma::Request request_of(std::span<const std::byte> message) noexcept;
  void record_latencies();
  bool submit(Task& task, rpcrdma::Request& request);
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept;
  bool check_results(const Task& task, const rpcrdma::Reply& reply) noexcept;
  Operation pick() noexcept { return only_ ? *only_ : pick_by_weight(); }
  Operation pick_by_weight() noexcept;
  std::uint64_t pick_offset() noexcept;
  template <typename Visit>
  void for_each_word(std::size_t bytes, std::uint64_t offset, Visit&& visit) const noexcept;
  void fill(std::span<std::byte> bytes, std::uint64_t offset) const noexcept;
  bool matches(std::span<const std::byte> bytes, std::uint64_t offset) const noexcept;

  const cli::Interruptible interruptible_;
  Client& client_;
  const LoadConfig config_;
  Handle root_;
  Handle file_;
  std::string name_;
  rdma::MemoryRegion region_;
  std::vector<Task> tasks_;
  FixedStack<Task*> idle_;
  std::vector<std::uint64_t> ended_;  ///< start times of calls that ended in this iteration
  std::size_t ended_count_ = 0;       ///< number of valid entries in ended_
  /// Messages of NULL, GETATTR and LOOKUP, which never change.
  struct Prebuilt {
    std::vector<std::byte> message;
    rpcrdma::Request request;
  };
  std::vector<Prebuilt> prebuilt_;  ///< by Operation
  std::unique_ptr<segment::Histogram> latency_;
  LoadResult result_;
  std::uint64_t started_ = 0;
  std::uint64_t random_;
  std::uint32_t total_weight_ = 0;
  std::optional<Operation> only_{};  ///< the only operation with a weight, if there is just one
};

/// Returns the result of a setup call. Throws ClientError that begins with `what` if the call has failed.
Client::Answer expect_ok(Client::Answer answer, const char* what);

}  // namespace sluice::bench
