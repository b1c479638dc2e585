// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/engine.h"

#include <algorithm>
#include <cstring>

#include "dataplane/rpcrdma/requester/requester.h"

namespace sluice::rpcrdma {

Engine::Engine(rdma::Device& device, const EngineConfig& config) : device_(device), config_(config) {
  shared_.call_memory =
      rdma::BufferPool(device.allocate_memory(std::size_t{config.call_buffers} * config.call_buffer_bytes),
                       config.call_buffer_bytes);
  shared_.reply_memory =
      rdma::BufferPool(device.allocate_memory(std::size_t{config.reply_buffers} * config.reply_buffer_bytes),
                       config.reply_buffer_bytes);
  shared_.assembly_memory = rdma::BufferPool(
      device.allocate_memory(std::size_t{config.assembly_buffers} * config.call_buffer_bytes),
      config.call_buffer_bytes);
  shared_.awaiting_assembly.resize(config.max_connections);
  shared_.remote_invalidation = device.limits().remote_invalidation;
  shared_.max_send_bytes = device.limits().max_send_bytes;
  const rdma::MemoryRegion pad = device.allocate_memory(xdr::kUnit);
  shared_.zero_pad = {pad.bytes.data(), xdr::kUnit, pad.lkey};
  shared_.stage.set_max_sge(std::min(queue_pair_limits().max_send_sge, device.limits().max_send_sge));
  // While a turn ends, each may be in it and among those of the next turn.
  shared_.touched.resize(2 * std::size_t{config.max_connections});
  for (std::uint32_t i = 0; i < config.callers; ++i) {
    callers_.push_back(std::make_unique<Requester>(shared_, device,
                                                   RequesterConfig{.requests = kCallBacksAtOnce,
                                                                   .inline_bytes = kCallBackBytes,
                                                                   .credits_requested = kCallBacksAtOnce,
                                                                   .windows = 0,
                                                                   .long_buffers = 0,
                                                                   .reverse = true}));
    shared_.callers.push_back(callers_.back().get());
  }
  draining_.resize(config.max_connections);
  closed_.resize(config.max_connections);
  // A region for all of a kind: drivers and NICs have room for a few thousand.
  const ConnectionCapacity& capacity = config.capacity;
  const std::size_t receive_bytes = std::size_t{capacity.receives()} * capacity.receive_bytes;
  const std::size_t reply_bytes = std::size_t{capacity.slots()} * capacity.reply_buffer_bytes;
  constexpr std::size_t control_bytes = kControlBuffers * kControlBytes;
  const rdma::MemoryRegion receives = device.allocate_memory(config.max_connections * receive_bytes);
  const rdma::MemoryRegion replies = device.allocate_memory(config.max_connections * reply_bytes);
  const rdma::MemoryRegion control = device.allocate_memory(config.max_connections * control_bytes);
  const auto part = [](const rdma::MemoryRegion& all, std::size_t bytes,
                       std::uint32_t i) -> rdma::MemoryRegion {
    return {all.bytes.subspan(i * bytes, bytes), all.lkey};
  };
  for (std::uint32_t i = 0; i < config.max_connections; ++i)
    connections_.push_back(std::make_unique<Connection>(
        shared_, static_cast<std::uint16_t>(i), capacity,
        ConnectionMemory{part(receives, receive_bytes, i), part(replies, reply_bytes, i),
                         part(control, control_bytes, i)}));
}

Engine::~Engine() = default;

void ServiceTable::describe(segment::CallTable& table) {
  const auto name = [](auto& to, std::string_view from) {
    std::memset(to, 0, sizeof to);
    std::memcpy(to, from.data(), std::min(from.size(), sizeof to - 1));
  };
  std::uint16_t next = segment::kOtherProcedure;
  name(table.info[next].program_name, "other");
  name(table.info[next++].procedure_name, "other");
  first_procedures_.assign(services_.size(), segment::kOtherProcedure);
  for (std::size_t i = 0; i < services_.size(); ++i) {
    const service::Binding& binding = services_[i]->binding();
    if (next + binding.procedure_names.size() > table.info.size()) continue;
    first_procedures_[i] = next;
    for (std::uint32_t procedure = 0; procedure < binding.procedure_names.size(); ++procedure) {
      segment::ProcedureInfo& info = table.info[next++];
      info = {.program = binding.program, .version = binding.version, .procedure = procedure};
      name(info.program_name, binding.name);
      name(info.procedure_name, binding.procedure_names[procedure]);
    }
  }
  table.procedures.store(next, std::memory_order_release);
}

rdma::QueuePairLimits Engine::queue_pair_limits() const noexcept {
  rdma::QueuePairLimits limits;
  limits.send_depth = config_.capacity.send_depth;
  limits.recv_depth = config_.capacity.receives();
  return limits;
}

Connection* Engine::free_connection() noexcept {
  for (auto& connection : connections_)
    if (connection->state() == Connection::State::Closed && !connection->close_unreported())
      return connection.get();
  return nullptr;
}

std::size_t Engine::poll(std::uint64_t now_ns) noexcept {
  shared_.now_ns = now_ns;
  const std::size_t count = device_.poll(completions_);
  if (count > 0) shared_.call_times.begin_turn();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t number = WrId::decode(completions_[i].wr_id).connection;
    connections_[number]->on_completion(completions_[i]);
  }
  resume_memory_waiters();
  if (now_ns >= next_tick_ns_) tick(now_ns);
  if (shared_.touched_count > 0) end_turn();
  for (std::size_t i = 0; i < draining_count_;) {
    if (!draining_[i]->reap()) {
      ++i;
      continue;
    }
    closed_[closed_count_++] = draining_[i];
    draining_[i] = draining_[--draining_count_];
  }
  return count;
}

/// Lets those go on that wait for memory, in order, as long as there is some.
void Engine::resume_memory_waiters() noexcept {
  while (!shared_.waiting_call_memory.empty() && shared_.call_memory.available() > 0) {
    CallSlot& slot = *shared_.waiting_call_memory.pop_front();
    slot.owner().resume(slot);
  }
  while (!shared_.waiting_reply_memory.empty() && shared_.reply_memory.available() > 0) {
    CallSlot& slot = *shared_.waiting_reply_memory.pop_front();
    slot.owner().resume(slot);
    if (slot.state() == CallSlot::State::AwaitingReplyMemory) break;
  }
  while (shared_.awaiting_assembly_count > 0 && shared_.assembly_memory.available() > 0) {
    Connection& connection = *shared_.awaiting_assembly[0];
    --shared_.awaiting_assembly_count;
    std::copy_n(shared_.awaiting_assembly.begin() + 1, shared_.awaiting_assembly_count,
                shared_.awaiting_assembly.begin());
    connection.resume_deferred();
  }
}

/// One connection at a time, so that each has its turn once in kTickNs.
void Engine::tick(std::uint64_t now_ns) noexcept {
  constexpr std::uint64_t kTickNs = 1'000'000;
  next_tick_ns_ = now_ns + kTickNs / connections_.size();
  connections_[next_ticked_]->tick();
  next_ticked_ = (next_ticked_ + 1) % connections_.size();
}

/// TX: hands everything that was staged to the driver, and lets waiting calls use the room. Connections
/// touched while this runs are looked at in the next turn.
void Engine::end_turn() noexcept {
  const std::size_t count = shared_.touched_count;
  for (std::size_t i = 0; i < count; ++i) {
    Connection& connection = *shared_.touched[i];
    // Payload before grants: a credit that is spent on a grant is not there for what waits (D2-15).
    if (connection.has_waiting()) connection.retry_waiting();
    connection.flush();
    if (connection.take_draining()) draining_[draining_count_++] = &connection;
  }
  shared_.call_times.end_turn();
  const std::size_t later = shared_.touched_count - count;
  for (std::size_t i = 0; i < later; ++i) shared_.touched[i] = shared_.touched[count + i];
  shared_.touched_count = later;
}

Connection* Engine::take_closed() noexcept {
  if (closed_count_ == 0) return nullptr;
  Connection* connection = closed_[--closed_count_];
  connection->close_reported();
  return connection;
}

}  // namespace sluice::rpcrdma
