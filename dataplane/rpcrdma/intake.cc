// SPDX-License-Identifier: Apache-2.0
//
// Version negotiation, intake of version 1 messages, and the properties of version 2.
#include "dataplane/rpcrdma/intake.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/version_rules.h"
#include "dataplane/rpcrdma/properties.h"
#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma {
namespace {

ServerAddress server_of(const Link& link) noexcept {
  return {link.peer(), link.config().server_port};
}

}  // namespace

void VersionChoice::open() noexcept {
  const ConnectionConfig& config = link_.config();
  LinkContext& context = link_.context();
  const bool version_2 =
      config.max_version >= v2::kVersion &&
      !(config.active && context.version_memory.version_1_only(server_of(link_), context.now_ns()));
  VersionState version = VersionState::Version1;
  Opening opening = Opening::Complete;
  if (version_2) version = config.active ? VersionState::AwaitingAnswer : VersionState::AwaitingFirstMessage;
  if (version == VersionState::AwaitingAnswer)
    opening =
        config.version2.greeting == Greeting::Call ? Opening::AwaitingCall : Opening::AwaitingProperties;
  asked_ns_ = 0;
  delivered_ = false;
  link_.begin(version, opening);
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
  if (link_.opening() == Opening::Complete && asked_ns_ == 0) asked_ns_ = now_ns;
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
  if (fixed.version != v1::kVersion) static_cast<void>(link_.flow().on_receive());
  return false;
}

void VersionChoice::settle(VersionState version) noexcept {
  const bool by_first_message = link_.version_state() == VersionState::AwaitingFirstMessage;
  link_.transition(version);
  if (!by_first_message) return;
  if (version == VersionState::Version2 && link_.config().version2.announce)
    link_.transition(Opening::AwaitingProperties);
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
  if (link_.opening() != Opening::Complete) link_.transition(Opening::Complete);
  roles_.responder().set_holding(false);
  link_.repost_spares();
  if (roles_.requester() != nullptr) roles_.requester()->on_fallback();
}

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

// --- Properties

namespace {

/// Sender of host authentication. The greeting is number 0.
constexpr Sender kHostAuthentication{Sender::Kind::Properties, 1};

}  // namespace

void Properties::open() noexcept {
  static_cast<void>(SLUICE_INVARIANT(outgoing_ == nullptr, pool_balance));
  heard_ = false;
  peer_ = {};
  posted_ = 0;
}

void Properties::on_closed() noexcept {
  // If Sends are posted, the driver uses the buffer until they are flushed.
  if (posted_ == 0) link_.context().assembly.release(std::exchange(outgoing_, nullptr));
}

bool Properties::take(std::span<const std::byte> body, const v2::Header& header, Refusal& refusal) noexcept {
  Counters& counters = link_.counters();
  const auto properties = header.response() ? std::nullopt : v2::decode_properties(body);
  if (!properties) {
    ++counters.bad_properties;
    refusal = kRefuseXdr;
    return true;
  }
  if (heard_ && !properties->host_authentication) {
    ++counters.late_properties;
    return true;
  }
  if (sink_ != nullptr && !sink_(sink_context_, connection_, body, !heard_)) return false;
  // The agreement is applied immediately because the next message may be a call whose reply must fit the
  // peer's Receives (V2-047).
  if (!heard_) link_.apply(v2::agree(link_.own_parameters(), *properties, &counters.clamped_properties));
  ++counters.properties_received;
  if (!heard_) peer_ = *properties;
  heard_ = true;
  return true;
}

bool Properties::send_host_authentication(std::span<const std::byte> octets) noexcept {
  SharedMemory& memory = link_.context().assembly;
  const std::size_t bytes = 3 * xdr::kUnit + xdr::kUnit + xdr::padded(octets.size());
  if (!link_.is_open() || !link_.rules().has_properties || outgoing_ != nullptr ||
      bytes > smaller_of<std::size_t>(kMaxPropertyBytes, memory.most_bytes()))
    return false;
  outgoing_ = memory.acquire(link_.assembly_account(), bytes);
  if (outgoing_ == nullptr) return false;
  xdr::Writer writer({outgoing_, bytes});
  v2::encode_host_authentication(writer, octets);
  static_cast<void>(SLUICE_INVARIANT(writer.ok(), buffer_bounds));
  outgoing_bytes_ = static_cast<std::uint32_t>(writer.position());
  sent_bytes_ = 0;
  link_.next_property_xid();
  send();
  return true;
}

void Properties::send() noexcept {
  static_cast<void>(SLUICE_INVARIANT(outgoing_ != nullptr && sent_bytes_ <= outgoing_bytes_, buffer_bounds));
  if (sent_bytes_ == outgoing_bytes_) return;  // all parts are sent; the buffer waits for their completions
  const rdma::Sge body{outgoing_, outgoing_bytes_, link_.context().assembly.lkey()};
  const rpc::Xid xid = link_.property_xid();
  if (!link_.stage_parts({.sender = kHostAuthentication,
                          .xid = xid,
                          .type = v2::HeaderType::ConnProp,
                          .payload = {&body, 1},
                          .payload_bytes = outgoing_bytes_,
                          .last_header_bytes = v2::kPrefixBytes},
                         sent_bytes_, posted_) ||
      !link_.may_send_now(kHostAuthentication))
    return;
  const auto control = link_.begin_control(kHostAuthentication);
  if (!control) return;
  const v2::CreditWord credit = link_.offer();
  xdr::Writer writer(link_.control_buffer(*control));
  v2::encode_connprop(writer, {.xid = xid, .credit = credit});
  link_.context().transmit.stage.append(link_.control_piece(*control, writer.position()));
  link_.append_payload({&body, 1}, sent_bytes_);
  sent_bytes_ = outgoing_bytes_;
  ++posted_;
  link_.count_send(credit);
  ++link_.counters().properties_sent;
  link_.end_continued_message();
}

void Properties::on_part_sent(std::uint16_t index) noexcept {
  if (index != kHostAuthentication.index) return;  // the greeting uses only its control buffer
  if (!SLUICE_INVARIANT(posted_ > 0, pool_balance)) return link_.close(CloseReason::InternalError);
  if (--posted_ == 0 && (sent_bytes_ == outgoing_bytes_ || !link_.is_open()))
    link_.context().assembly.release(std::exchange(outgoing_, nullptr));
}

}  // namespace sluice::rpcrdma
