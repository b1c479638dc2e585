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

class ClosedLoop {
 public:
  /// Creates a loop of `outstanding` calls. A reply must have `reply_bytes` bytes and the accept_stat
  /// SUCCESS; any other one is a defect of the benchmark and ends it. `client` and `call` must outlive the
  /// object.
  ClosedLoop(Client& client, std::span<const std::byte> call, std::size_t reply_bytes,
             std::size_t outstanding)
      : client_(client), call_(call), reply_bytes_(reply_bytes), tasks_(outstanding) {
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

 private:
  static constexpr std::uint64_t kCallsBetweenClocks = 10'000;
  static constexpr std::uint32_t kMaxReplyBytes = 256;

  struct Task {
    ClosedLoop* loop = nullptr;
    std::size_t number = 0;
  };

  /// Not inlined, because instructions.py counts what it executes.
  template <typename PollServers>
  [[gnu::noinline]] void run(std::uint64_t calls, const PollServers& poll_servers) {
    done_ = 0;
    for (std::uint64_t started = 0; done_ < calls;) {
      while (!idle_.empty() && started < calls && submit(*idle_.back())) {
        idle_.pop_back();
        ++started;
      }
      client_.poll();
      poll_servers();
    }
  }
  bool submit(Task& task) {
    rpcrdma::Request request;
    request.payload = call_;
    request.max_reply_bytes = kMaxReplyBytes;
    request.completion = &completed;
    request.context = &task;
    auto& sessions = client_.sessions();
    return sessions[task.number % sessions.size()].requester->submit(request).has_value();
  }
  bool succeeded(std::span<const std::byte> reply) const {
    return reply.size() == reply_bytes_ && rpc::begins_with_success(reply);
  }
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept {
    Task& task = *static_cast<Task*>(context);
    if (reply.status() != rpcrdma::CallStatus::Ok || !task.loop->succeeded(reply.message())) std::abort();
    ++task.loop->done_;
    task.loop->idle_.push_back(&task);
  }

  Client& client_;
  const std::span<const std::byte> call_;
  const std::size_t reply_bytes_;
  std::vector<Task> tasks_;
  std::vector<Task*> idle_;
  std::uint64_t done_ = 0;
};

}  // namespace sluice::bench
