// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/engine.h"

#include <cstring>
#include <string>
#include <string_view>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/pool_size.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/device.h"

namespace sluice::rpcrdma {

namespace {

/// Throws SetupError if a pool is empty: a call that needs a buffer would then wait forever. Calls that find
/// no free buffer wait in a round robin.
void require_pools(const EngineConfig& config) {
  require_pool("call_buffers", config.call_buffers, {{"a call that is assembled from Read chunks", 1}});
  require_pool("large_reply_buffers", config.reply_buffers,
               {{"results that do not fit the buffer of their call slot", 1}});
  require_pool("assembly_buffers", config.assembly_buffers,
               {{"a continued message that is being assembled", 1}});
}

}  // namespace

Engine::Engine(rdma::Device& device, const EngineConfig& config)
    : device_(device), config_(config), connections_(config.max_connections) {
  require_pools(config);
  const auto provide = [&](SharedMemory& memory, std::uint32_t buffers, std::uint32_t bytes,
                           std::uint32_t guaranteed_small = 1, std::uint32_t lent_small = kLentSmall) {
    memory.provide(device, {.accounts = config.max_connections,
                            .small_bytes = config.small_buffer_bytes < bytes ? config.small_buffer_bytes : 0,
                            .large_bytes = bytes,
                            .large = buffers,
                            .guaranteed_small = guaranteed_small,
                            .lent_small = lent_small});
  };
  provide(responders_.memory.calls, config.call_buffers, config.call_buffer_bytes, 1,
          config.lent_call_buffers);
  provide(responders_.memory.replies, config.reply_buffers, config.reply_buffer_bytes);
  provide(links_.assembly, config.assembly_buffers, config.call_buffer_bytes, kGuaranteedAssembly);
  links_.remote_invalidation = device.limits().remote_invalidation;
  links_.max_send_bytes = device.limits().max_send_bytes;
  const rdma::MemoryRegion pad = device.allocate_memory(xdr::kUnit);
  responders_.zero_pad = {pad.bytes.data(), xdr::kUnit, pad.lkey};
  links_.transmit.stage.set_max_sge(
      smaller_of(queue_pair_limits().max_send_sge, device.limits().max_send_sge),
      device.limits().max_read_sge);
  for (std::uint32_t i = 0; i < config.callers; ++i) {
    callers_.add(make_owned<Requester>(requester_context(), device,
                                       RequesterConfig{.requests = kCallBacksAtOnce,
                                                       .inline_bytes = kCallBackBytes,
                                                       .credits_requested = kCallBacksAtOnce,
                                                       .windows = 0,
                                                       .long_buffers = 0,
                                                       .reverse = true}));
  }
  // Each kind of memory is one region because drivers and NICs support only a few thousand regions.
  const ConnectionCapacity& capacity = config.capacity;
  const std::size_t receive_bytes = capacity.receives() * buffer_stride(capacity.receive_bytes);
  const std::size_t reply_bytes = capacity.slots() * buffer_stride(capacity.reply_buffer_bytes);
  constexpr std::size_t control_bytes = v2::kControlBuffers * v2::kControlBytes;
  const rdma::MemoryRegion receives = device.allocate_memory(config.max_connections * receive_bytes);
  const rdma::MemoryRegion replies = device.allocate_memory(config.max_connections * reply_bytes);
  const rdma::MemoryRegion control = device.allocate_memory(config.max_connections * control_bytes);
  const auto part = [](const rdma::MemoryRegion& all, std::size_t bytes,
                       std::uint32_t i) -> rdma::MemoryRegion {
    return {all.bytes.subspan(i * bytes, bytes), all.lkey};
  };
  for (std::uint32_t i = 0; i < config.max_connections; ++i)
    connections_.emplace_back(
        links_, responders_, callers_, static_cast<std::uint16_t>(i), capacity,
        ConnectionMemory{part(receives, receive_bytes, i), part(replies, reply_bytes, i),
                         part(control, control_bytes, i)});
  for (std::uint32_t i = 0; i < config.max_connections; ++i) free_.push_back(connections_[i]);
  device.prepare_queue_pairs(queue_pair_limits(), config.max_connections);
  static_cast<void>(SLUICE_INVARIANT(connections_.size() == config.max_connections, table_index));
}

Engine::~Engine() {
  static_cast<void>(SLUICE_INVARIANT(!all_closed() || memory_balanced(), pool_balance));
}

rdma::QueuePairLimits Engine::queue_pair_limits() const noexcept {
  rdma::QueuePairLimits limits;
  limits.send_depth = config_.capacity.send_depth;
  limits.recv_depth = config_.capacity.receives();
  return limits;
}

void Engine::pass_on() noexcept {
  owner_.pass_on();
  device_.pass_on();
}

std::size_t Engine::poll(std::uint64_t now_ns) noexcept {
  SLUICE_INVARIANT_DEBUG(owner_.is_caller(), object_owner);
  links_.transmit.now_ns = now_ns;
  responders_.refusals.begin_turn();
  CallTimes& times = responders_.measurement.times;
  const std::size_t count = device_.poll(completions_);
  SLUICE_INVARIANT_DEBUG(count <= completions_.size(), buffer_bounds);
  worked_ = count > 0 || device_.moved();
  if (worked_) {
    const std::uint64_t begun_ns = stages_.end(Stage::Device);
    if (count > 0) times.begin_turn(begun_ns);
  }
  const std::span<const rdma::WorkCompletion> completions(completions_.data(), count);
  if (times.sampled()) [[unlikely]]
    handle_sampled(completions);
  else
    handle(completions);
  responders_.memory.calls.resume_waiters();
  responders_.memory.replies.resume_waiters();
  links_.assembly.resume_waiters();
  responders_.refusals.resume_waiters();
  const auto connections = static_cast<std::uint32_t>(connections_.size());
  if (const std::uint32_t due = ticks_.due(now_ns, connections); due > 0) [[unlikely]]
    tick(due);
  const bool staged = !links_.transmit.iteration_end.empty();
  if (staged) end_turn();
  SLUICE_INVARIANT_DEBUG(!links_.transmit.iteration_end.empty() || links_.transmit.staged_for == nullptr,
                         connection_state);
  SLUICE_INVARIANT_DEBUG(!links_.transmit.iteration_end.empty() || links_.transmit.receives_for == nullptr,
                         connection_state);
  if (staged || count > 0) {
    worked_ = true;
    times.end_turn(stages_.end(Stage::Calls));
  }
  return count;
}

/// Handles a sampled iteration (one in CallTimes::kTurnsPerSample) and attributes the time of each completion
/// to its call.
void Engine::handle_sampled(std::span<const rdma::WorkCompletion> completions) noexcept {
  for (const rdma::WorkCompletion& completion : completions) {
    handle({&completion, 1});
    responders_.measurement.times.end_sample();
  }
}

/// Runs the timers of the next `connections` connections, round robin. Each connection is due once per
/// kTickNs, or later if there are more connections than PacedRound::kMostInATurn per iteration in which the
/// clock advances.
void Engine::tick(std::uint32_t connections) noexcept {
  static_cast<void>(SLUICE_INVARIANT(next_ticked_ < connections_.size(), table_index));
  for (; connections > 0; --connections) {
    connections_[next_ticked_].tick();
    next_ticked_ = next_ticked_ + 1 < connections_.size() ? next_ticked_ + 1 : 0;
  }
}

/// Completes the TX part of an iteration: hands all staged work requests to the driver and lets waiting calls
/// use the room. Closed connections are checked for reaping after each of their completions. Links that enter
/// the queue while this runs are processed in the next iteration.
void Engine::end_turn() noexcept {
  const FlushQueue& entries = links_.transmit.iteration_end;
  const FlushEntry* const last = entries.back();
  for (bool done = false; !done;) {
    const FlushEntry* const entry = entries.front();
    SLUICE_INVARIANT_DEBUG(entry != nullptr && entry->connection < connections_.size(), list_membership);
    done = entry == last;
    Connection& connection = connections_[entry->connection];
    connection.end_turn();
    if (connection.reap()) closed_.push_back(connection);
  }
}

/// Returns connections to the front of the free queue because their memory may still be in the cache.
Connection* Engine::take_closed() noexcept {
  Connection* const connection = closed_.pop_front();
  static_cast<void>(SLUICE_INVARIANT(
      connection == nullptr || connection->state() == Connection::State::Closed, connection_state));
  if (connection != nullptr) free_.push_front(*connection);
  return connection;
}

bool Engine::all_closed() const noexcept {
  for (std::size_t i = 0; i < connections_.size(); ++i)
    if (connections_[i].state() != Connection::State::Closed) return false;
  return true;
}

bool Engine::memory_balanced() const noexcept {
  const std::size_t slots = std::size_t{config_.max_connections} * config_.capacity.slots();
  const auto whole = [](const SharedMemory& memory) { return memory.available() == memory.buffers(); };
  return whole(responders_.memory.calls) && whole(responders_.memory.replies) && whole(links_.assembly) &&
         callers_.all_free() && slots_in_state(static_cast<std::size_t>(CallSlot::State::Free)) == slots;
}

// --- Services

void ServiceTable::add(service::Service& service, std::uint32_t port) {
  add_unoffered(service);
  if (!offer(service, port))
    throw SetupError("There are more than " + std::to_string(kMaxServices) +
                     " programs and versions to serve. Configure fewer upstreams or services.");
}

void ServiceTable::add_unoffered(service::Service& service) {
  if (!has_element(services_, &service)) services_.push_back(&service);
}

bool ServiceTable::offer(service::Service& service, std::uint32_t port) noexcept {
  static_cast<void>(SLUICE_INVARIANT(has_element(services_, &service), list_membership));
  if (count_ == kMaxServices) return false;
  const service::Binding& binding = service.binding();
  Entry& entry = entries_[count_++];
  entry = {.program = binding.program,
           .version = binding.version,
           .port = port,
           .binding = &binding,
           .service = &service};
  set_procedures(entry);
  return true;
}

void ServiceTable::withdraw(const service::Service& service) noexcept {
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count_; ++i)
    if (entries_[i].service != &service) entries_[kept++] = entries_[i];
  count_ = kept;
}

const ServiceTable::Described* ServiceTable::described(const service::Binding& binding) const noexcept {
  for (const Described& each : std::span(described_).first(described_count_))
    if (each.program == binding.program && each.version == binding.version) return &each;
  return nullptr;
}

void ServiceTable::set_procedures(Entry& entry) const noexcept {
  const Described* const known = described(*entry.binding);
  if (known == nullptr) return;
  entry.first_procedure = known->first_procedure;
  entry.procedures = known->procedures;
}

std::optional<rpc::VersionRange> ServiceTable::versions_of(std::uint32_t program,
                                                           std::uint16_t port) const noexcept {
  std::optional<rpc::VersionRange> versions;
  for (const Entry& entry : entries()) {
    if (entry.program != program || entry.port != port) continue;
    if (!versions) versions = rpc::VersionRange{entry.version, entry.version};
    versions->low = smaller_of(versions->low, entry.version);
    versions->high = larger_of(versions->high, entry.version);
  }
  return versions;
}

void ServiceTable::describe(segment::CallTable& table) {
  const auto name = [](auto& to, std::string_view from) {
    std::memset(to, 0, sizeof to);
    std::memcpy(to, from.data(), smaller_of(from.size(), sizeof to - 1));
  };
  std::uint16_t next = segment::kOtherProcedure;
  name(table.info[next].program_name, "other");
  name(table.info[next++].procedure_name, "other");
  const auto add = [&](const service::Binding& binding) {
    const std::size_t procedures = binding.procedure_names.size();
    if (described(binding) != nullptr || procedures == 0 || described_count_ == kMaxDescribed ||
        next + procedures > table.info.size())
      return;
    described_[described_count_++] = {.program = binding.program,
                                      .version = binding.version,
                                      .first_procedure = next,
                                      .procedures = static_cast<std::uint32_t>(procedures)};
    for (std::uint32_t procedure = 0; procedure < procedures; ++procedure) {
      segment::ProcedureInfo& info = table.info[next++];
      info = {.program = binding.program, .version = binding.version, .procedure = procedure};
      name(info.program_name, binding.name);
      name(info.procedure_name, binding.procedure_names[procedure]);
    }
  };
  described_count_ = 0;
  for (const Entry& entry : entries()) add(*entry.binding);
  for (const service::Binding* const binding : later_) add(*binding);
  for (Entry& entry : std::span(entries_).first(count_)) set_procedures(entry);
  static_cast<void>(SLUICE_INVARIANT(next <= table.info.size(), table_index));
  // Pairs with in_all() and procedures() of the admin views, and add_calls() of the exporter: `info`.
  table.procedures.store(next, std::memory_order_release);
}

}  // namespace sluice::rpcrdma
