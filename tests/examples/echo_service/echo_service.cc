// SPDX-License-Identifier: Apache-2.0
#include "tests/examples/echo_service/echo_service.h"

#include <string_view>

namespace sluice::examples {
namespace {

using service::Execution;
using service::Placement;

/// State of a call, zero until place() has assigned a block.
struct EchoState {
  bool placed = false;
  std::uint32_t block = 0;
  std::uint32_t bytes = 0;  ///< length of the data without XDR padding
};

/// Returns the size of the results, which equals the size of the arguments.
std::uint64_t max_results_bytes(std::uint32_t procedure, std::span<const std::byte> arguments) {
  if (procedure != kEchoProcedure) return 0;
  return xdr::kUnit + xdr::padded(xdr::Reader(arguments).u32());
}

constexpr service::ProcedureBinding kProcedures[] = {
    {},                                               // NULL
    {.eligible_arguments = 1, .eligible_results = 1}  // ECHO
};
constexpr std::string_view kNames[] = {"null", "echo"};
constexpr service::Binding kBinding{.program = kEchoProgram,
                                    .version = kEchoVersion,
                                    .procedures = kProcedures,
                                    .name = "echo",
                                    .procedure_names = kNames,
                                    .max_results_bytes = &max_results_bytes};

}  // namespace

EchoService::EchoService(rdma::Device& device)
    : memory_(device.allocate_memory(std::size_t{kEchoBlocks} * kMaxEchoBytes)), free_(kEchoBlocks) {
  for (std::uint32_t number = 0; number < kEchoBlocks; ++number) free_.push(number);
}

const service::Binding& EchoService::binding() const noexcept {
  return kBinding;
}

std::byte* EchoService::block(std::uint32_t number) const noexcept {
  return memory_.bytes.data() + std::size_t{number} * kMaxEchoBytes;
}

/// The arguments end after the count word, and the chunk may include XDR padding (V1-086). Everything is
/// checked here, because the peer can send any count with any chunk.
Placement EchoService::place(service::Call& call) noexcept {
  xdr::Reader arguments(call.arguments());
  const std::uint32_t bytes = arguments.u32();
  const bool fits = arguments.ok() && arguments.remaining() == 0 && bytes <= kMaxEchoBytes &&
                    call.placed_bytes() >= bytes && call.placed_bytes() <= xdr::padded(bytes);
  if (!fits) {
    call.complete(rpc::AcceptStat::GarbageArgs);
    return Placement::Reply;
  }
  if (free_.empty()) return Placement::Assemble;
  auto& state = call.state<EchoState>();
  state = {.placed = true, .block = free_.pop(), .bytes = bytes};
  call.add_sink_piece({block(state.block), call.placed_bytes(), memory_.lkey});
  return Placement::Sink;
}

Execution EchoService::execute(service::Call& call) noexcept {
  switch (call.header().procedure) {
    case kNullProcedure:
      call.complete(rpc::AcceptStat::Success);
      return Execution::Started;
    case kEchoProcedure:
      break;
    default:
      call.complete(rpc::AcceptStat::ProcUnavail);
      return Execution::Started;
  }
  const auto& state = call.state<EchoState>();
  if (!state.placed) return copy(call);
  call.results().u32(state.bytes);
  call.add_result_piece({block(state.block), state.bytes, memory_.lkey});
  call.add_result_item(state.bytes);
  call.complete(rpc::AcceptStat::Success);
  return Execution::Started;
}

/// Returns data that came with the call, or was assembled in transport memory.
Execution EchoService::copy(service::Call& call) noexcept {
  xdr::Reader arguments(call.arguments());
  const auto data = arguments.opaque(kMaxEchoBytes);
  if (!arguments.ok() || arguments.remaining() != 0) {
    call.complete(rpc::AcceptStat::GarbageArgs);
    return Execution::Started;
  }
  if (!call.require_results(xdr::kUnit + xdr::padded(data.size()))) return Execution::NeedsMemory;
  call.results().opaque(data);
  call.complete(rpc::AcceptStat::Success);
  return Execution::Started;
}

void EchoService::release(service::Call& call) noexcept {
  if (call.header().procedure != kEchoProcedure) return;
  auto& state = call.state<EchoState>();
  if (state.placed) free_.push(state.block);
  state.placed = false;
}

}  // namespace sluice::examples
