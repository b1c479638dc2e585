// SPDX-License-Identifier: Apache-2.0
//
// Compares two reactors of one process, of which one owns the files, with a reactor in each of two processes.
// Each reactor has a processor, and a client in its thread. Every measurement starts new processes, so the
// placement of memory does not favor a side.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/bench/file_client.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kBoth = 2;  ///< reactors, and processors
constexpr std::uint32_t kDepth = 64;
constexpr std::uint64_t kTurnsPerControlPass = 256;
constexpr std::uint64_t kTurnsPerClock = 64;
constexpr double kWarmUpSeconds = 0.05;
constexpr int kFailed = 1;

/// Memory that all processes of a measurement share.
struct Board {
  std::atomic<std::uint32_t> ready{0};  ///< reactors that can begin
  std::atomic<std::uint32_t> ended{0};  ///< reactors whose time is over
  std::array<double, kBoth> rates{};
};

/// Polls one reactor and its client until the time of both reactors is over, because the owner serves the
/// calls of the other one. Records the client's calls per second.
void run_reactor(Reactors& reactors, std::uint32_t i, FileClient& client, FileCall kind, double seconds,
                 Board& board, std::uint32_t processor) {
  pin(static_cast<int>(processor));
  FileClient::Loop& loop = client.loop(kind);
  std::uint64_t turn = 0;
  const auto turns = [&] {
    for (std::uint64_t end = turn + kTurnsPerClock; turn < end; ++turn) {
      loop.step();
      reactors.poll(i);
      if (turn % kTurnsPerControlPass == 0) reactors.control_pass(i);
    }
  };
  const auto run_for = [&](double duration) {
    const std::uint64_t begin = now_ns();
    const std::uint64_t done = loop.done();
    std::uint64_t now = begin;
    for (; static_cast<double>(now - begin) < duration * 1e9; now = now_ns()) turns();
    return static_cast<double>(loop.done() - done) * 1e9 / static_cast<double>(now - begin);
  };
  loop.begin(UINT64_MAX);
  run_for(kWarmUpSeconds);
  // Pairs with the load below. Only the rates are passed on, after the processes have ended.
  board.ready.fetch_add(1, std::memory_order_release);
  while (board.ready.load(std::memory_order_acquire) < kBoth) turns();
  board.rates[processor] = run_for(seconds);
  board.ended.fetch_add(1, std::memory_order_release);
  while (board.ended.load(std::memory_order_acquire) < kBoth) turns();
}

/// Runs `count` reactors in this process, on the processors from `first`.
void run_process(FileCall kind, double seconds, Board& board, std::uint32_t first, std::uint32_t count) {
  Reactors reactors({.reactors = count, .connections = 1, .call_slots = kDepth});
  std::vector<std::unique_ptr<FileClient>> clients;
  for (std::uint32_t i = 0; i < count; ++i)
    clients.push_back(
        std::make_unique<FileClient>(reactors, FileClientConfig{.reactor = i, .depth = kDepth}));
  for (std::uint32_t i = 0; i < count; ++i) {
    reactors.pass_on(i);
    clients[i]->pass_on();
  }
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] { run_reactor(reactors, i, *clients[i], kind, seconds, board, first + i); });
  for (std::thread& thread : threads) thread.join();
  _exit(0);  // outstanding calls end with the process
}

/// Returns the calls per second of both reactors.
template <FileCall kKind, std::uint32_t kReactorsOfProcess>
double calls_per_second(double seconds) {
  void* const memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto& board = *new (memory) Board;
  for (std::uint32_t first = 0; first < kBoth; first += kReactorsOfProcess)
    if (const pid_t child = ::fork(); child == 0) {
      ::alarm(60);  // ends a process whose partner has failed
      run_process(kKind, seconds, board, first, kReactorsOfProcess);
    } else if (child < 0) {
      throw std::runtime_error("A process could not be started.");
    }
  for (int status = 0; ::wait(&status) > 0;)
    if (status != 0) std::exit(kFailed);
  double sum = 0;
  for (const double rate : board.rates) sum += rate;
  ::munmap(memory, sizeof(Board));
  return sum;
}

template <FileCall kKind>
constexpr auto kPair = calls_per_second<kKind, kBoth>;
template <FileCall kKind>
constexpr auto kProcesses = calls_per_second<kKind, 1>;

constexpr Side kSides[] = {
    {"null_pair", kPair<FileCall::Null>},       {"null_processes", kProcesses<FileCall::Null>},
    {"getattr_pair", kPair<FileCall::GetAttr>}, {"getattr_processes", kProcesses<FileCall::GetAttr>},
    {"read4k_pair", kPair<FileCall::Read4k>},   {"read4k_processes", kProcesses<FileCall::Read4k>},
    {"write4k_pair", kPair<FileCall::Write4k>}, {"write4k_processes", kProcesses<FileCall::Write4k>},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
