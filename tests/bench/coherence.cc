// SPDX-License-Identifier: Apache-2.0
//
// Reactors and their clients in one thread, for coherence.py, which traces the memory accesses. Stores to two
// arrays mark in the trace who runs and which calls are counted. The program prints the large allocations, so
// that the script can name addresses.
//
// coherence REACTORS DEPTH CALLS
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "tests/bench/file_client.h"

namespace {

constexpr std::size_t kMaxRunners = 64;
constexpr std::size_t kClientRuns = kMaxRunners - 2;
constexpr std::size_t kBenchRuns = kMaxRunners - 1;
constexpr std::size_t kMaxCounted = 64;
constexpr std::size_t kNothingCounted = kMaxCounted - 1;

}  // namespace

// The script finds these by name, so they have no namespace.
extern "C" {
volatile unsigned char coherence_runs[kMaxRunners];
volatile unsigned char coherence_counts[kMaxCounted];
}

// --- Large allocations
namespace {

struct Allocation {
  const void* at;
  std::size_t bytes;
  const void* caller;
};
constexpr std::size_t kMinRecordedBytes = 512;
std::array<Allocation, 4096> allocations;
std::size_t allocation_count = 0;

void* allocate(std::size_t bytes, std::size_t alignment, const void* caller) {
  void* at = nullptr;
  if (posix_memalign(&at, alignment, bytes) != 0) throw std::bad_alloc();
  if (bytes >= kMinRecordedBytes && allocation_count < allocations.size())
    allocations[allocation_count++] = {at, bytes, caller};
  return at;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* at) noexcept {
  std::free(at);
}
void operator delete(void* at, std::size_t) noexcept {
  std::free(at);
}
void operator delete(void* at, std::align_val_t) noexcept {
  std::free(at);
}
void operator delete(void* at, std::size_t, std::align_val_t) noexcept {
  std::free(at);
}

namespace sluice::bench {
namespace {

constexpr int kDrainTurns = 8;      ///< iterations after the last reply, in which reactors release calls
constexpr double kPatienceS = 600;  ///< a tracer slows down the connection setup
constexpr std::uint64_t kWarmUpCalls = 2;  ///< of each task, before calls are counted

void run_as(std::size_t runner) {
  coherence_runs[runner] = 1;
}

class Coherence {
 public:
  Coherence(std::uint32_t reactors, std::uint32_t depth, std::uint64_t calls)
      : depth_(depth),
        calls_(calls),
        reactors_({.reactors = reactors, .connections = 1, .call_slots = depth}) {
    for (std::uint32_t i = 0; i < reactors; ++i)
      clients_.push_back(std::make_unique<FileClient>(
          reactors_, FileClientConfig{.reactor = i, .depth = depth, .timeout_s = kPatienceS}));
    for (const auto& client : clients_) client->read_from(clients_[0]->names());
  }

  void run() {
    constexpr auto kOwn = kFileCallKinds;  // counted after all kinds of calls at other reactors
    for (std::size_t kind = 0; kind < kFileCallKinds; ++kind)
      measure(static_cast<FileCall>(kind), kind, 1, reactors_.count());
    measure(FileCall::GetAttr, kOwn, 0, 1);
  }

 private:
  /// Makes calls at the reactors from `first` to before `end`.
  void measure(FileCall kind, std::size_t counted, std::uint32_t first, std::uint32_t end) {
    // Names that REMOVE uses were made by as many calls of CREATE.
    make_calls(kind, depth_ * kWarmUpCalls, first, end);
    coherence_counts[counted] = 1;
    make_calls(kind, calls_, first, end);
    coherence_counts[kNothingCounted] = 1;
  }
  void make_calls(FileCall kind, std::uint64_t calls, std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t i = first; i < end; ++i) clients_[i]->loop(kind).begin(calls);
    for (int drained = 0; drained < kDrainTurns;) {
      run_as(kClientRuns);
      bool ended = true;
      for (std::uint32_t i = first; i < end; ++i) {
        clients_[i]->loop(kind).step();
        ended = ended && clients_[i]->loop(kind).ended();
      }
      if (ended) ++drained;
      for (std::uint32_t i = 0; i < reactors_.count(); ++i) {
        run_as(i);
        reactors_.poll(i);
        if (i == 0) reactors_.background();
      }
    }
    run_as(kBenchRuns);
  }

  const std::uint32_t depth_;
  const std::uint64_t calls_;
  Reactors reactors_;
  std::vector<std::unique_ptr<FileClient>> clients_;
};

int run(std::uint32_t reactors, std::uint32_t depth, std::uint64_t calls) {
  Coherence coherence(reactors, depth, calls);
  for (const Allocation& allocation : std::span(allocations).first(allocation_count))
    std::printf("%p %zu %p\n", allocation.at, allocation.bytes, allocation.caller);
  std::fflush(stdout);
  coherence.run();
  return 0;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "Usage: coherence REACTORS DEPTH CALLS\n"), 2;
  return sluice::bench::run(static_cast<std::uint32_t>(std::atoi(argv[1])),
                            static_cast<std::uint32_t>(std::atoi(argv[2])),
                            static_cast<std::uint64_t>(std::atoll(argv[3])));
}
