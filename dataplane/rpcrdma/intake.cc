// SPDX-License-Identifier: Apache-2.0
//
// Version negotiation, intake of version 1 messages, and the way of whole messages of version 2 to a role.
#include "dataplane/rpcrdma/intake.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma {
namespace {

ServerAddress server_of(const Link& link) noexcept {
  return {link.peer(), link.config().server_port};
}

}  // namespace

// --- Version

void VersionChoice::open() noexcept {
  const ConnectionConfig& config = link_.config();
  LinkContext& context = link_.context();
  const bool version_2 =
      config.max_version >= v2::kVersion &&
      !(config.active && context.version_memory.version_1_only(server_of(link_), context.now_ns()));
  VersionState version = VersionState::Version1;
  v2::Opening opening = v2::Opening::Complete;
  if (version_2) version = config.active ? VersionState::AwaitingAnswer : VersionState::AwaitingFirstMessage;
  if (version == VersionState::AwaitingAnswer)
    opening = config.version2.greeting == Greeting::Call ? v2::Opening::AwaitingCall
                                                         : v2::Opening::AwaitingProperties;
  asked_ns_ = 0;
  delivered_ = false;
  link_.begin(version);
  session_.begin(opening);
}

void VersionChoice::on_drained() noexcept {
  if (delivered_ && link_.negotiating() && link_.close_reason() != CloseReason::LocalClose)
    remember_version_1();
}

void VersionChoice::remember_version_1() noexcept {
  static_cast<void>(SLUICE_INVARIANT(link_.config().active, connection_state));
  LinkContext& context = link_.context();
  context.version_memory.add(server_of(link_),
                             context.now_ns() + link_.config().version2.version_1_memory_ns);
}

void VersionChoice::tick() noexcept {
  if (!link_.negotiating()) return;
  const std::uint64_t now_ns = link_.context().now_ns();
  // Connections are opened outside of loop iterations, where the clock may be stale. The first tick starts
  // the timer.
  if (session_.opening() == v2::Opening::Complete && asked_ns_ == 0) asked_ns_ = now_ns;
  if (asked_ns_ > 0 && now_ns > asked_ns_ && now_ns - asked_ns_ > link_.config().version2.first_answer_ns)
    link_.close(CloseReason::NoAnswer);
}

/// The first supported message determines a server's version (V2-016). A client's version is determined at
/// open().
bool VersionChoice::is_version_2(std::uint16_t buffer, std::uint32_t bytes) noexcept {
  if (link_.speaks_version_2()) return true;
  if (bytes < kFixedBytes) return false;
  const FixedHeader fixed = load_fixed(link_.receive_buffer(buffer).data());
  if (fixed.version == v2::kVersion) return true;
  // The version may be unsupported: ERR_VERS uses a credit as every message does (D2-16).
  if (fixed.version != v1::kVersion) static_cast<void>(session_.flow().on_receive());
  return false;
}

void VersionChoice::settle(VersionState version) noexcept {
  const bool by_first_message = link_.version_state() == VersionState::AwaitingFirstMessage;
  link_.transition(version);
  session_.on_version();
  if (!by_first_message) return;
  if (version == VersionState::Version2 && link_.config().version2.announce)
    session_.transition(v2::Opening::AwaitingProperties);
  link_.retry_at_turn_end();  // reverse calls waited for the version
}

void VersionChoice::fall_back(rpc::VersionRange supported) noexcept {
  remember_version_1();
  if (supported.low > v1::kVersion || supported.high < v1::kVersion) {
    settle(VersionState::Version2);  // nothing is left to negotiate
    return link_.close(CloseReason::NoCommonVersion);
  }
  ++link_.counters().fallbacks;
  settle(VersionState::Version1);
  if (session_.opening() != v2::Opening::Complete) session_.transition(v2::Opening::Complete);
  roles_.responder().set_holding(false);
  link_.repost_spares();
  if (roles_.requester() != nullptr) roles_.requester()->on_fallback();
}

// --- Messages of version 1

[[gnu::always_inline]] inline void IntakeV1::on_msg(const ReceivedMessage& message) noexcept {
  Counters& counters = link_.counters();
  const auto payload = message.payload();
  if (payload.size() < 2 * xdr::kUnit) {
    ++counters.no_payload;
    return roles_.to_either(message, kRefuseXdr);
  }
  const std::uint32_t type = xdr::load_u32(payload.data() + xdr::kUnit);
  if (type == static_cast<std::uint32_t>(rpc::MessageType::Reply)) return roles_.to_requester(message);
  if (type != static_cast<std::uint32_t>(rpc::MessageType::Call)) {
    ++counters.no_payload;
    return roles_.to_either(message, kRefuseXdr);
  }
  if (link_.config().active && !message.header.chunks.empty()) {
    ++counters.reverse_chunks_refused;
    return roles_.to_responder(message, kRefuseXdr);
  }
  roles_.to_responder(message, kNoRefusal);
}

void IntakeV1::arrive(std::uint16_t buffer, std::span<const std::byte> bytes) noexcept {
  Counters& counters = link_.counters();
  ReceivedMessage& message = roles_.responder().next_message();
  message.begin(buffer, bytes);
  const v1::DecodeResult decoded = v1::decode(bytes);
  message.header.fixed = bytes.size() >= kFixedBytes ? load_fixed(bytes.data()) : FixedHeader{};
  message.header.no_msg = decoded.header.procedure == v1::Procedure::NoMsg;
  if (!decoded.header.chunks.empty()) message.header.chunks = decoded.header.chunks;
  message.header.header_bytes = decoded.header.header_bytes;
  if (!usable(decoded, message)) return;
  if (link_.version_state() == VersionState::AwaitingFirstMessage &&
      decoded.header.procedure != v1::Procedure::Error) {
    if (link_.config().supported_versions().low > v1::kVersion) {
      ++counters.bad_version;
      return roles_.responder().on_call(message, kRefuseVersion);
    }
    version_.settle(VersionState::Version1);
  }
  switch (decoded.header.procedure) {
    case v1::Procedure::Msg:
      return on_msg(message);
    case v1::Procedure::NoMsg:
      // Only messages of the forward direction have chunks (V1-157). On the active side this is a reply,
      // otherwise a call. A NOMSG call always has Read chunks, so one without them is a late reply to an
      // abandoned call.
      if (!link_.config().active) return roles_.to_responder(message, kNoRefusal);
      if (message.header.chunks.reads.empty() || roles_.awaits_reply(message.header.fixed.xid))
        return roles_.to_requester(message);
      ++counters.reverse_chunks_refused;
      return roles_.to_responder(message, kRefuseXdr);
    case v1::Procedure::Error:
      if (roles_.requester() != nullptr) roles_.requester()->on_error(decoded.header);
      return link_.repost(buffer);
    case v1::Procedure::Done:
      ++counters.done_dropped;
      return link_.repost(buffer);
    case v1::Procedure::MsgP:
      ++counters.msgp_refused;
      if (link_.config().active) return link_.repost(buffer);
      return roles_.to_responder(message, kRefuseXdr);
  }
}

/// Returns false if the header is defective; the message has then been answered or dropped.
bool IntakeV1::usable(const v1::DecodeResult& decoded, const ReceivedMessage& message) noexcept {
  Counters& counters = link_.counters();
  switch (decoded.status) {
    case v1::Decode::Ok:
      return true;
    case v1::Decode::Fragment:
      ++counters.bad_fragment;
      return link_.repost(message.buffer), false;
    case v1::Decode::BadError:
      ++counters.bad_error_message;
      return link_.repost(message.buffer), false;
    case v1::Decode::BadVersion:
      ++counters.bad_version;
      return roles_.to_either(message, kRefuseVersion), false;
    case v1::Decode::BadProcedure:
      ++counters.bad_procedure;
      return roles_.to_either(message, kRefuseXdr), false;
    case v1::Decode::BadChunks:
      ++counters.bad_chunk_lists;
      return roles_.to_either(message, kRefuseXdr), false;
    case v1::Decode::TooManySegments:
      ++counters.too_many_segments;
      return roles_.to_either(message, kRefuseXdr), false;
  }
  return true;
}

// --- Whole messages of version 2

[[gnu::noinline]] void IntakeV2::on_plain(std::uint16_t buffer, std::span<const std::byte> octets) noexcept {
  SLUICE_INVARIANT_DEBUG(sequence_.idle() && wait_ == Wait::Nothing, connection_state);
  const bool response = v2::plain_response(octets.data());
  ReceivedMessage& message = roles_.responder().next_message();
  message.begin(buffer, octets);
  message.header.fixed = v2::load_plain(octets.data());
  message.header.header_bytes = v2::kMinMsgHeaderBytes;
  if (response) return roles_.to_requester(message);
  hand_over({buffer, static_cast<std::uint32_t>(octets.size()), {}}, message, false);
}

/// Runs step 10: the RPC message must agree with its transport header.
void IntakeV2::take_message(Arrived arrived, const v2::Header& header, bool assembled) noexcept {
  ReceivedMessage& message = roles_.responder().next_message();
  message.begin(arrived.buffer, link_.receive_buffer(arrived.buffer).first(arrived.bytes));
  message.header.fixed = load_fixed(message.bytes.data());
  message.header.no_msg = header.type == v2::HeaderType::NoMsg;
  if (!header.chunks.empty()) message.header.chunks = header.chunks;
  message.header.header_bytes = header.header_bytes;
  message.header.invalidate = header.response() ? arrived.invalidated : header.invalidate;
  if (assembled) {
    SLUICE_INVARIANT_DEBUG(assembly_ != nullptr, pool_balance);
    message.assembly = std::exchange(assembly_, nullptr);
    message.assembled_bytes = assembled_bytes_;
  }
  hand_over(arrived, message, header.response());
}

/// Hands a message to its role, unless it is refused.
void IntakeV2::hand_over(Arrived arrived, ReceivedMessage& message, bool response) noexcept {
  const rpc::Xid xid = message.header.fixed.xid;
  Refusal refusal;
  if (!message.header.no_msg) refusal = payload_refusal(xid, response, message.payload());
  if (response && !refusal) return roles_.to_requester(message);
  if (!response && !refusal && link_.config().active) refusal = reverse_refusal(message);
  if (!response && link_.config().credit_grant > 0 && !refusal)
    return roles_.responder().on_call(message, kNoRefusal);
  link_.context().assembly.release(message.assembly);
  fault(arrived, xid, response, refusal.value_or(kRefuseSystem));
}

Refusal IntakeV2::payload_refusal(rpc::Xid xid, bool response, std::span<const std::byte> payload) noexcept {
  Counters& counters = link_.counters();
  if (payload.size() < 2 * xdr::kUnit) {
    ++counters.no_payload;
    return kRefuseXdr;
  }
  if (static_cast<rpc::Xid>(xdr::load_u32(payload.data())) != xid) {
    ++counters.xid_mismatch;
    return kRefuseXdr;
  }
  const std::uint32_t type = xdr::load_u32(payload.data() + xdr::kUnit);
  if (type == static_cast<std::uint32_t>(response ? rpc::MessageType::Reply : rpc::MessageType::Call))
    return std::nullopt;
  ++counters.direction_mismatch;
  return type <= 1 ? kRefuseFlags : kRefuseXdr;
}

/// Checks calls of the reverse direction against the level of support that this end has announced (D2-27).
Refusal IntakeV2::reverse_refusal(ReceivedMessage& message) noexcept {
  Counters& counters = link_.counters();
  const v2::ReverseSupport level = session_.own_parameters().reverse;
  const ChunkLists& chunks = message.header.chunks;
  if (level == v2::ReverseSupport::None || link_.config().credit_grant == 0) {
    ++counters.direction_not_served;
    return kRefuseSystem;
  }
  if (level != v2::ReverseSupport::Inline) return std::nullopt;
  if (!chunks.reads.empty() || !chunks.writes.empty()) {
    ++counters.reverse_chunks_refused;
    return v2::Error{.code = chunks.reads.empty() ? v2::ErrorCode::ReplyResource : v2::ErrorCode::ReadChunks};
  }
  message.header.chunks.reply.reset();
  return std::nullopt;
}

}  // namespace sluice::rpcrdma
