// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/delayed_ends.h"

#include <rte_cycles.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "cli/bench/client.h"

namespace sluice::bench {
namespace {

using rdma::conformance::RpcRdmaPair;

constexpr std::uint32_t kMostDepth = 32;
constexpr std::size_t kMostCalls = 1u << 18;  ///< limit of a run
/// Limit of calls whose memory is in use. Acknowledgements of several Sends arrive together, and the memory
/// of a call is released with its acknowledgement.
constexpr std::uint32_t kCallsInMemory = 4 * kMostDepth;

/// Clock mode of the ends that are in use. It is global because the ports take a function.
bool counts_trips = false;
std::uint64_t trips_ns = 1'000'000'000;

std::uint64_t clock_ns() noexcept {
  static const double ns_per_cycle = 1e9 / static_cast<double>(rte_get_tsc_hz());
  return counts_trips ? trips_ns
                      : static_cast<std::uint64_t>(static_cast<double>(rte_rdtsc()) * ns_per_cycle);
}

service::memory::MemoryServiceConfig exports() {
  service::memory::MemoryServiceConfig config{.max_files = 1000, .handle_key = {}, .exports = {}};
  config.exports = {{.path = "/", .root_squash = false, .allowed = {}}};
  return config;
}

}  // namespace

RpcRdmaPair::Options DelayedEnds::options(const Transport& transport, std::uint64_t one_way_ns) {
  return {.ports = {.one_way_ns = one_way_ns, .clock_ns = &clock_ns},
          .version = transport.version,
          .inline_bytes = transport.inline_bytes,
          .calls = kCallsInMemory};
}

DelayedEnds::DelayedEnds(const Transport& transport, std::uint64_t one_way_ns, Clock clock)
    : transport_(transport),
      clock_((counts_trips = clock == Clock::Trips, clock)),
      one_way_ns_(one_way_ns),
      pair_(options(transport, one_way_ns)),
      memory_(pair_.ports().right().allocate_memory(8u << 20),
              pair_.ports().right().allocate_memory(service::memory::kLargeBytes + 64), exports(), &now_ns),
      client_memory_(pair_.ports().left().allocate_memory(kMostDepth * kMostWriteBytes)),
      tasks_(kMostDepth) {
  pair_.server().add_service(null_);
  pair_.server().add_service(memory_);
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    tasks_[i].ends = this;
    tasks_[i].data = client_memory_.bytes.subspan(i * kMostWriteBytes, kMostWriteBytes);
  }
  const auto root = memory_.root_handle(0);
  files_ = make_files(root, [this](const DelayedCall& call) { return transact(call); });
}

DelayedEnds::~DelayedEnds() {
  pair_.close();
}

/// Returns whether a call is sent inline. An argument may always stay in its call if it fits; version 2 sends
/// long calls in parts.
bool DelayedEnds::goes_inline(const DelayedCall& call) const {
  const std::size_t bytes = call.message.size() + call.data_bytes;
  return transport_.version == 1 ? rpcrdma::kMinMsgHeaderBytes + bytes <= transport_.inline_bytes
                                 : bytes <= rpcrdma::RequesterConfig{}.continue_up_to;
}

void DelayedEnds::start(Task& task, const DelayedCall& call) {
  rpcrdma::Request request{.payload = call.message,
                           .max_reply_bytes = call.max_reply_bytes,
                           .completion = &completed,
                           .context = &task};
  Bytes whole;
  const rdma::Sge piece{task.data.data(), call.data_bytes, client_memory_.lkey};
  const rpcrdma::ReadItem item{static_cast<rpcrdma::Position>(call.message.size()), {&piece, 1}};
  if (call.data_bytes > 0 && goes_inline(call)) {
    whole = call.message;
    whole.insert(whole.end(), task.data.begin(), task.data.begin() + call.data_bytes);
    request.payload = whole;
  } else if (call.data_bytes > 0) {
    request.reads = {&item, 1};
  }
  task.has_status = call.has_status;
  task.reply.clear();
  task.done = false;
  task.begun_ns = clock_ns();
  if (!pair_.requester().submit(request)) throw std::runtime_error("All request slots are in use.");
}

void DelayedEnds::completed(void* context, const rpcrdma::Reply& reply) noexcept {
  Task& task = *static_cast<Task*>(context);
  if (reply.status() == rpcrdma::CallStatus::Ok)
    task.reply.assign(reply.message().begin(), reply.message().end());
  task.ends->latencies_ns_[task.call].push_back(static_cast<double>(clock_ns() - task.begun_ns));
  task.done = true;
}

bool DelayedEnds::next_arrival() {
  pair_.settle();
  const std::uint64_t next_ns =
      std::min(pair_.ports().wire().next_arrival_ns().value_or(kNever), next_start_ns_);
  if (next_ns == kNever) return false;
  trips_ns = next_ns;
  pair_.settle();
  return true;
}

void DelayedEnds::step() {
  if (!pair_.is_open()) throw std::runtime_error("The connection was lost.");
  if (pair_.ports().wire().counts().dropped > 0) throw std::runtime_error("The wire lost frames.");
  if (clock_ == Clock::Processor)
    pair_.turn();
  else
    next_arrival();
}

void DelayedEnds::run(std::span<const DelayedCall> calls, std::uint32_t depth, double seconds) {
  counts_trips = clock_ == Clock::Trips;
  latencies_ns_.assign(calls.size(), {});
  for (auto& one : latencies_ns_) one.reserve(kMostCalls / calls.size() + 1);
  const std::uint64_t apart_ns = 2 * one_way_ns_ / depth;
  const std::uint64_t begun_ns = clock_ns();
  const std::uint64_t end_ns = now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
  std::size_t started = 0;
  for (bool busy = true; busy; step()) {
    const std::size_t in_use = std::min<std::uint64_t>(depth, 1 + (clock_ns() - begun_ns) / apart_ns);
    busy = in_use < depth;
    next_start_ns_ = busy ? begun_ns + in_use * apart_ns : kNever;
    for (Task& task : std::span(tasks_).first(in_use)) {
      if (task.done && std::exchange(task.begun_ns, 0) > 0) expect_success(task.reply, task.has_status);
      if (task.done && (started < calls.size() || (now_ns() < end_ns && started < kMostCalls))) {
        task.call = started++ % calls.size();
        start(task, calls[task.call]);
      }
      busy = busy || !task.done;
    }
  }
}

Bytes DelayedEnds::transact(const DelayedCall& call) {
  latencies_ns_.assign(1, {});
  start(tasks_[0], call);
  while (!tasks_[0].done) step();
  return tasks_[0].reply;
}

RpcRdmaPair::Operations DelayedEnds::operations() {
  counts_trips = clock_ == Clock::Trips;
  if (clock_ == Clock::Trips)
    while (next_arrival()) {
    }
  return pair_.operations();
}

}  // namespace sluice::bench
