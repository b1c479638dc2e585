// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/intake_v1.h"

namespace sluice::rpcrdma {

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
    if (link_.supported_versions().low > v1::kVersion) {
      ++counters.bad_version;
      return roles_.responder().on_call(message, kRefuseVersion);
    }
    version_.settle(VersionState::Version1);
  }
  switch (decoded.header.procedure) {
    case v1::Procedure::Msg:
      return on_msg(message);
    case v1::Procedure::NoMsg:
      // Only forward messages have chunks (V1-157): a reply to the side that opened the connection, else a
      // call. No call is without Read chunks: that is the late reply to one that was given up.
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

/// False: the header has a defect, and the message is answered or dropped already.
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

}  // namespace sluice::rpcrdma
