// SPDX-License-Identifier: Apache-2.0
#include "controlplane/locks/protocol.h"

namespace sluice::locks {
namespace {

Bytes netobj(xdr::Reader& reader, std::uint32_t max_bytes = kMaxString) {
  const auto bytes = reader.opaque(max_bytes);
  return {bytes.begin(), bytes.end()};
}

bool is_lock(std::uint32_t procedure) {
  return procedure == kLock || procedure == kNmLock;
}

bool has_mode(std::uint32_t procedure) {
  return procedure != kUnlock;
}

bool has_block(std::uint32_t procedure) {
  return is_lock(procedure) || procedure == kCancel;
}

}  // namespace

void encode(xdr::Writer& writer, std::uint32_t procedure, const LockArguments& arguments) {
  writer.opaque(arguments.cookie);
  if (has_block(procedure)) writer.boolean(arguments.block);
  if (has_mode(procedure)) writer.boolean(arguments.exclusive);
  writer.string(arguments.lock.caller);
  writer.opaque(arguments.lock.handle);
  writer.opaque(arguments.lock.owner);
  writer.u32(arguments.lock.svid);
  writer.u64(arguments.lock.offset);
  writer.u64(arguments.lock.length);
  if (is_lock(procedure)) {
    writer.boolean(arguments.reclaim);
    writer.u32(arguments.state);
  }
}

std::optional<LockArguments> decode_arguments(xdr::Reader& reader, std::uint32_t procedure) {
  LockArguments arguments;
  arguments.cookie = netobj(reader);
  if (has_block(procedure)) arguments.block = reader.boolean();
  if (has_mode(procedure)) arguments.exclusive = reader.boolean();
  arguments.lock.caller = reader.string(kMaxString);
  arguments.lock.handle = netobj(reader, kMaxHandle);
  arguments.lock.owner = netobj(reader);
  arguments.lock.svid = reader.u32();
  arguments.lock.offset = reader.u64();
  arguments.lock.length = reader.u64();
  if (is_lock(procedure)) {
    arguments.reclaim = reader.boolean();
    arguments.state = reader.u32();
  }
  return reader.ok() ? std::optional(std::move(arguments)) : std::nullopt;
}

void encode(xdr::Writer& writer, const LockResult& result, bool test) {
  writer.opaque(result.cookie);
  writer.u32(static_cast<std::uint32_t>(result.stat));
  if (!test || result.stat != Stat::Denied) return;
  const Holder holder = result.holder.value_or(Holder{});
  writer.boolean(holder.exclusive);
  writer.u32(holder.svid);
  writer.opaque(holder.owner);
  writer.u64(holder.offset);
  writer.u64(holder.length);
}

std::optional<LockResult> decode_result(xdr::Reader& reader, bool test) {
  LockResult result;
  result.cookie = netobj(reader);
  result.stat = static_cast<Stat>(reader.u32());
  if (test && result.stat == Stat::Denied) {
    Holder& holder = result.holder.emplace();
    holder.exclusive = reader.boolean();
    holder.svid = reader.u32();
    holder.owner = netobj(reader);
    holder.offset = reader.u64();
    holder.length = reader.u64();
  }
  return reader.ok() ? std::optional(std::move(result)) : std::nullopt;
}

void encode(xdr::Writer& writer, const HostState& state) {
  writer.string(state.name);
  writer.u32(state.state);
}

std::optional<HostState> decode_host_state(xdr::Reader& reader) {
  HostState state;
  state.name = reader.string(kMaxString);
  state.state = reader.u32();
  return reader.ok() ? std::optional(std::move(state)) : std::nullopt;
}

}  // namespace sluice::locks
