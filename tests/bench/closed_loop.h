// SPDX-License-Identifier: Apache-2.0
//
// Calls of one kind on the connections of one client, used in rotation, with a constant number of outstanding
// calls. The caller polls both ends. One thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cli/bench/client.h"
#include "dataplane/rpc/message.h"

namespace sluice::bench {

/// Source of calls that are all the same. A reply must have `reply_bytes` bytes and the accept_stat SUCCESS.
/// The message must outlive the object.
class SameCall {
 public:
  SameCall(std::span<const std::byte> message, std::size_t reply_bytes)
      : message_(message), reply_bytes_(reply_bytes) {}

  /// Returns the next call of a task, without its completion.
  rpcrdma::Request next(std::size_t) const {
    rpcrdma::Request request;
    request.payload = message_;
    request.max_reply_bytes = kMaxReplyBytes;
    return request;
  }
  bool succeeded(const rpcrdma::Reply& reply) const {
    return reply.message().size() == reply_bytes_ && rpc::begins_with_success(reply.message());
  }

 private:
  static constexpr std::uint32_t kMaxReplyBytes = 256;

  const std::span<const std::byte> message_;
  const std::size_t reply_bytes_;
};

/// `Calls` has the functions of SameCall.
template <typename Calls = SameCall>
class ClosedLoop {
 public:
  /// Creates a loop of `outstanding` calls. A reply that `calls` does not accept is a defect of the benchmark
  /// and ends it. `client` must outlive the object.
  ClosedLoop(Client& client, Calls calls, std::size_t outstanding)
      : client_(client), calls_(std::move(calls)), tasks_(outstanding) {
    for (Task& task : tasks_) {
      task = {this, static_cast<std::size_t>(&task - tasks_.data())};
      idle_.push_back(&task);
    }
  }
  ClosedLoop(const ClosedLoop&) = delete;
  ClosedLoop& operator=(const ClosedLoop&) = delete;

  /// Returns calls per second of `clock`, which is in nanoseconds. `poll_servers` polls the servers once.
  template <typename ClockNs, typename PollServers>
  double rate(double seconds, const ClockNs& clock, const PollServers& poll_servers) {
    const std::uint64_t begin = clock();
    const auto end = begin + static_cast<std::uint64_t>(seconds * 1e9);
    std::uint64_t calls = 0;
    std::uint64_t now = begin;
    for (; now < end; now = clock()) {
      run(kCallsBetweenClocks, poll_servers);
      calls += kCallsBetweenClocks;
    }
    return static_cast<double>(calls) * 1e9 / static_cast<double>(now - begin);
  }
  template <typename PollServers>
  void warm_up(const PollServers& poll_servers) {
    run(kCallsBetweenClocks, poll_servers);
  }
  /// Makes `calls` calls and waits for their replies. Not inlined, because instructions.py counts what it
  /// executes.
  template <typename PollServers>
  [[gnu::noinline]] void run(std::uint64_t calls, const PollServers& poll_servers) {
    begin(calls);
    while (!ended()) {
      step();
      poll_servers();
    }
  }

  const Calls& calls() const { return calls_; }

  // Parts of run(), for a caller with several loops.
  void begin(std::uint64_t calls) {
    wanted_ = calls;
    started_ = done_ = 0;
  }
  bool ended() const { return done_ >= wanted_; }
  std::uint64_t done() const { return done_; }
  /// Submits what may be outstanding, and polls the client once.
  void step() {
    while (!idle_.empty() && started_ < wanted_ && submit(*idle_.back())) {
      idle_.pop_back();
      ++started_;
    }
    client_.poll();
  }

 private:
  static constexpr std::uint64_t kCallsBetweenClocks = 10'000;

  struct Task {
    ClosedLoop* loop = nullptr;
    std::size_t number = 0;
  };

  bool submit(Task& task) {
    rpcrdma::Request request = calls_.next(task.number);
    request.completion = &completed;
    request.context = &task;
    auto& sessions = client_.sessions();
    return sessions[task.number % sessions.size()].requester->submit(request).has_value();
  }
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept {
    Task& task = *static_cast<Task*>(context);
    if (reply.status() != rpcrdma::CallStatus::Ok || !task.loop->calls_.succeeded(reply)) std::abort();
    ++task.loop->done_;
    task.loop->idle_.push_back(&task);
  }

  Client& client_;
  Calls calls_;
  std::vector<Task> tasks_;
  std::vector<Task*> idle_;
  std::uint64_t wanted_ = 0;
  std::uint64_t started_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace sluice::bench
