// SPDX-License-Identifier: Apache-2.0
//
// The lock service: messages of NLM and NSM, their procedures, and sockets.
#include "controlplane/locks/lock_service.h"

#include <array>
#include <utility>

#include "controlplane/locks/protocol.h"
#include "dataplane/segment/heartbeat.h"

namespace sluice::locks {
namespace {

Bytes netobj(xdr::Reader& reader, std::uint32_t max_bytes = kMaxString) {
  const auto bytes = reader.opaque(max_bytes);
  return {bytes.begin(), bytes.end()};
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

namespace {

constexpr std::size_t kShortReplyBytes = rpc::kMinReplyBytes + 4 * xdr::kUnit;

/// Sends a reply whose results are `words`.
template <typename... Words>
void reply_stat(const IncomingCall& call, rpc::AcceptStat stat, Words... words) {
  std::array<std::byte, kShortReplyBytes> room;
  xdr::Writer writer(room);
  rpc::encode_accepted(writer, call.xid, {}, stat);
  (writer.u32(words), ...);
  call.reply(writer.written());
}

/// Encodes the reply to a call that is for another program or has an unacceptable header. Returns an empty
/// span if the call may be executed.
std::span<const std::byte> refusal(xdr::Writer& writer, rpc::CallDecode decoded,
                                   const rpc::CallHeader& header, bool welcome) {
  const rpc::AuthFlavor flavor = header.credential.flavor;
  const std::uint32_t version = header.program == kNlmProgram ? kNlmVersion : kNsmVersion;
  if (decoded == rpc::CallDecode::RpcMismatch)
    rpc::encode_rpc_mismatch(writer, header.xid);
  else if (decoded == rpc::CallDecode::BadCred)
    rpc::encode_auth_error(writer, header.xid, rpc::AuthStat::BadCred);
  else if (decoded == rpc::CallDecode::BadVerf)
    rpc::encode_auth_error(writer, header.xid, rpc::AuthStat::BadVerf);
  else if (flavor != rpc::AuthFlavor::None && flavor != rpc::AuthFlavor::Sys)
    rpc::encode_auth_error(writer, header.xid, rpc::AuthStat::RejectedCred);
  else if (header.program != kNlmProgram && header.program != kNsmProgram)
    rpc::encode_accepted(writer, header.xid, {}, rpc::AcceptStat::ProgUnavail);
  else if (header.version != version)
    rpc::encode_prog_mismatch(writer, header.xid, {}, {version, version});
  else if (!welcome)
    rpc::encode_auth_error(writer, header.xid, rpc::AuthStat::TooWeak);
  return writer.written();
}

}  // namespace

bool LockProcedures::answer(std::span<const std::byte> message, const onc_rpc::Asker& asker, std::size_t,
                            const Reply& reply) {
  xdr::Reader reader(message);
  rpc::CallHeader header;
  const rpc::CallDecode decoded = rpc::decode_call(reader, header);
  if (decoded == rpc::CallDecode::Truncated || decoded == rpc::CallDecode::NotACall) {
    count(statistics_.malformed);
    return false;
  }
  const bool admitted = clients_(asker.address) || upstream_(asker.address);
  const bool notice = header.program == kNsmProgram && header.procedure == kNsmNotify;
  const bool welcome = header.procedure == kNull || admitted || notice;
  std::array<std::byte, kShortReplyBytes> room;
  xdr::Writer writer(room);
  if (const auto refused = refusal(writer, decoded, header, welcome); !refused.empty()) {
    if (!welcome) count(statistics_.denied);
    reply(refused);
    return true;
  }
  const IncomingCall call{.xid = header.xid,
                          .procedure = header.procedure,
                          .asker = asker,
                          .credential = header.credential,
                          .reply = reply};
  if (header.program == kNlmProgram)
    lock_manager(call, reader);
  else
    status_monitor(call, reader, admitted);
  return true;
}

void LockProcedures::count_call(std::uint32_t procedure) {
  if (procedure == kTest)
    count(statistics_.tests);
  else if (procedure == kLock || procedure == kNmLock)
    count(statistics_.locks);
  else if (procedure == kCancel)
    count(statistics_.cancels);
  else if (procedure == kUnlock)
    count(statistics_.unlocks);
  else
    count(statistics_.grants);
}

void LockProcedures::lock_manager(const IncomingCall& call, xdr::Reader& reader) {
  const auto garbage = [&] {
    count(statistics_.malformed);
    reply_stat(call, rpc::AcceptStat::GarbageArgs);
  };
  switch (call.procedure) {
    case kNull:
      return reply_stat(call, rpc::AcceptStat::Success);
    case kTest:
    case kLock:
    case kNmLock:
    case kCancel:
    case kUnlock:
    case kGranted:
    case kGrantedMsg: {
      const auto arguments = decode_arguments(reader, call.procedure);
      if (!arguments) return garbage();
      count_call(call.procedure);
      if (call.procedure != kGranted && call.procedure != kGrantedMsg)
        return proxy_.forward(call, *arguments);
      if (!upstream_(call.asker.address)) {
        count(statistics_.denied);
        return reply_stat(call, rpc::AcceptStat::SystemErr);
      }
      if (call.procedure == kGrantedMsg) reply_stat(call, rpc::AcceptStat::Success);
      return proxy_.granted(call, *arguments);
    }
    case kFreeAll: {
      const auto state = decode_host_state(reader);
      if (!state) return garbage();
      reply_stat(call, rpc::AcceptStat::Success);
      return proxy_.free_all(call.asker.address, *state, call.asker.now_ns);
    }
    default:
      return reply_stat(call, rpc::AcceptStat::ProcUnavail);
  }
}

/// Handles NSM calls. Requests to monitor hosts are refused, because the lock manager of this host has its
/// own monitor. A notice with the upstream's name is accepted from any address, because the upstream may have
/// several.
void LockProcedures::status_monitor(const IncomingCall& call, xdr::Reader& reader, bool admitted) {
  if (call.procedure == kNsmNull) return reply_stat(call, rpc::AcceptStat::Success);
  if (call.procedure == kNsmStat || call.procedure == kNsmMon)
    return reply_stat(call, rpc::AcceptStat::Success, kNsmStatFail, kOwnState);
  if (call.procedure != kNsmNotify) return reply_stat(call, rpc::AcceptStat::ProcUnavail);
  const auto state = decode_host_state(reader);
  if (!state) {
    count(statistics_.malformed);
    return reply_stat(call, rpc::AcceptStat::GarbageArgs);
  }
  if (admitted || proxy_.is_name_of_upstream(state->name)) return proxy_.restarted(call, *state);
  count(statistics_.denied);
  std::array<std::byte, kShortReplyBytes> room;
  xdr::Writer writer(room);
  rpc::encode_auth_error(writer, call.xid, rpc::AuthStat::TooWeak);
  call.reply(writer.written());
}

LockService::LockService(const LockSettings& settings, LockStatistics& statistics)
    : journal_(settings.state.empty() ? std::optional<Journal>()
                                      : std::optional<Journal>(std::in_place, settings.state)),
      proxy_(settings.proxy, statistics, journal_ ? &*journal_ : nullptr),
      procedures_(proxy_, settings.may_lock, settings.proxy.is_upstream, statistics),
      endpoint_(settings.port, "locks (NLM)", "Set locks.port to another port, or locks.enabled = false.",
                procedures_, statistics.sockets, kMaxLockCallBytes) {
  if (journal_) {
    journal_->load(proxy_.table());
    proxy_.resume(segment::monotonic_ns());
  }
  if (settings.rpcbind.empty()) return;
  endpoint_.register_program(
      kNlmProgram, kNlmVersion, settings.rpcbind,
      {"NLM",
       "Lock requests of clients go there, and fail. The lock manager of this host's kernel registers "
       "it while an NFS version 3 file system is mounted with locks or exported here. Unmount or "
       "unexport it, or run 'rpcinfo -d 100021 4' if the lock manager does not run"});
  endpoint_.register_program(
      kNsmProgram, kNsmVersion, settings.rpcbind,
      {"NSM",
       "Restarts of clients and of the upstream are not detected, so locks of a client that has "
       "crashed remain. Stop this host's rpc.statd, or run 'rpcinfo -d 100024 1' if it "
       "does not run"});
}

void LockService::prepare(PollSet& set) {
  endpoint_.prepare(set);
  if (!endpoint_.finishing()) proxy_.prepare(set);
}

void LockService::poll(const PollSet& set, std::uint64_t now_ns) {
  if (!endpoint_.finishing()) {
    proxy_.poll(set, now_ns);
    if (journal_) journal_->maintain(proxy_.table(), now_ns);
  }
  endpoint_.poll(set, now_ns);
}

}  // namespace sluice::locks
