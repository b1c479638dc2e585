// SPDX-License-Identifier: Apache-2.0
#include "controlplane/locks/procedures.h"

#include <array>

namespace sluice::locks {
namespace {

constexpr std::size_t kShortReplyBytes = rpc::kMinReplyBytes + 4 * xdr::kUnit;

/// `words`: the results.
template <typename... Words>
void reply_stat(const IncomingCall& call, rpc::AcceptStat stat, Words... words) {
  std::array<std::byte, kShortReplyBytes> room;
  xdr::Writer writer(room);
  rpc::encode_accepted(writer, call.xid, {}, stat);
  (writer.u32(words), ...);
  call.reply(writer.written());
}

/// The reply to a call that is for no program of ours, or comes with what cannot be accepted; empty: it may go on.
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

bool LockProcedures::answer(std::span<const std::byte> message, const mount::Asker& asker, std::size_t,
                            const Reply& reply) {
  xdr::Reader reader(message);
  rpc::CallHeader header;
  const rpc::CallDecode decoded = rpc::decode_call(reader, header);
  if (decoded == rpc::CallDecode::Truncated || decoded == rpc::CallDecode::NotACall) {
    count(statistics_.malformed);
    return false;
  }
  const bool welcome = header.procedure == kNull || clients_(asker.address) || upstream_(asker.address);
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
    status_monitor(call, reader);
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

/// The monitor of this host's own lock manager is another: nothing is monitored here on somebody's behalf.
void LockProcedures::status_monitor(const IncomingCall& call, xdr::Reader& reader) {
  if (call.procedure == kNsmNull) return reply_stat(call, rpc::AcceptStat::Success);
  if (call.procedure == kNsmStat || call.procedure == kNsmMon)
    return reply_stat(call, rpc::AcceptStat::Success, kNsmStatFail, kOwnState);
  if (call.procedure != kNsmNotify) return reply_stat(call, rpc::AcceptStat::ProcUnavail);
  const auto state = decode_host_state(reader);
  if (!state) {
    count(statistics_.malformed);
    return reply_stat(call, rpc::AcceptStat::GarbageArgs);
  }
  reply_stat(call, rpc::AcceptStat::Success);
  proxy_.restarted(call.asker.address, *state, call.asker.now_ns);
}

}  // namespace sluice::locks
