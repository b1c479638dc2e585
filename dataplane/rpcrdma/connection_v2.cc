// SPDX-License-Identifier: Apache-2.0
//
// What version 2 adds to a connection: the choice of the version, credits per message, continuation, and
// properties (draft, sections 4.2, 4.3, 5 and 6.3; rows V2-001 to V2-065 and V2-084 to V2-095).
#include <algorithm>
#include <cstring>

#include "dataplane/rpcrdma/connection.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma {

using v2::Decode;
using v2::HeaderType;
using Step = v2::InboundSequence::Step;

namespace {

/// Parts end on XDR units, so that a receiver may join them word by word (D2-30).
constexpr std::uint64_t kPartUnit = xdr::kUnit;

std::size_t part_header_bytes(HeaderType type) noexcept {
  return type == HeaderType::ConnProp ? v2::kPrefixBytes : v2::kMinMsgHeaderBytes;
}

/// What `pieces` of the payload hold behind `from`, at most.
std::uint64_t bytes_in_pieces(std::span<const rdma::Sge> payload, std::uint64_t from,
                              std::size_t pieces) noexcept {
  std::uint64_t bytes = 0;
  for (const rdma::Sge& piece : payload) {
    if (from >= piece.length) {
      from -= piece.length;
      continue;
    }
    if (pieces-- == 0) break;
    bytes += piece.length - from;
    from = 0;
  }
  return bytes;
}

bool append_pieces(SendStage& stage, std::span<const rdma::Sge> payload, std::uint64_t from,
                   std::uint64_t bytes) noexcept {
  for (rdma::Sge piece : payload) {
    if (bytes == 0) break;
    if (from >= piece.length) {
      from -= piece.length;
      continue;
    }
    piece.address += from;
    piece.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(piece.length - from, bytes));
    from = 0;
    bytes -= piece.length;
    if (!stage.append(piece)) return false;
  }
  return true;
}

}  // namespace

// --- The version

void Connection::open_version_2() noexcept {
  if (config_.receive_inline_bytes < v2::kDefaultReceiveBytes) config_.max_version = v1::kVersion;  // V2-011
  const bool version_2 = config_.max_version >= v2::kVersion &&
                         !(config_.active && shared_.version_memory.version_1_only(peer_, shared_.now_ns));
  version_ = !version_2 ? v1::kVersion : config_.active ? v2::kVersion : 0;
  negotiation_ = version_ == v2::kVersion ? v2::Negotiation::Open : v2::Negotiation::Fixed;
  opening_ = Opening::None;
  if (version_ == v2::kVersion)
    opening_ = config_.version2.greeting == Greeting::Call ? Opening::Call : Opening::Properties;
  held_ = version_2 && config_.version2.hold_calls;
  properties_told_ = undelivered_ = awaits_assembly_ = tx_waiting_ = false;
  flow_.open(config_.credit_grant + config_.credits_requested, config_.active);
  agreement_ = {};
  agreement_.send_bytes = std::min(v2::kDefaultSendBytes, own_parameters().max_send_bytes);
  peer_parameters_ = {};
  sequence_ = {};
  assembly_ = nullptr;
  deferred_.clear();
  spare_receive_count_ = 0;
  speaker_ = {};
  asked_ns_ = 0;
  last_send_ns_ = shared_.now_ns;
  outgoing_posted_ = 0;
  free_control_count_ = kControlBuffers;
  for (std::size_t i = 0; i < kControlBuffers; ++i) free_controls_[i] = static_cast<std::uint16_t>(i);
}

void Connection::close_version_2() noexcept {
  if (negotiating() && close_reason_ != CloseReason::LocalClose)
    shared_.version_memory.add(peer_, shared_.now_ns + config_.version2.version_1_memory_ns);
  drop_assembly();
  undelivered_ = false;
  deferred_.clear();
  if (awaits_assembly_) {
    const auto begin = shared_.awaiting_assembly.begin();
    const auto end = begin + static_cast<std::ptrdiff_t>(shared_.awaiting_assembly_count);
    const auto at = std::find(begin, end, this);
    std::copy(at + 1, end, at);
    --shared_.awaiting_assembly_count;
    awaits_assembly_ = false;
  }
  if (outgoing_ != nullptr && outgoing_posted_ == 0)
    shared_.assembly_memory.release(std::exchange(outgoing_, nullptr));
}

v2::Parameters Connection::own_parameters() const noexcept {
  if (!config_.version2.announce) return {};
  v2::Parameters own = config_.version2.parameters;
  own.max_send_bytes = std::min(own.max_send_bytes, shared_.max_send_bytes);
  own.receive_buffer_bytes = config_.receive_inline_bytes;
  if (config_.active && config_.credit_grant == 0) own.reverse = v2::ReverseSupport::None;
  return own;
}

/// A server's version is that of the first supported message (V2-016); a client knows its own from the start.
bool Connection::is_version_2(std::uint16_t buffer, std::uint32_t bytes) noexcept {
  if (version_ == v2::kVersion) return true;
  if (bytes < kFixedBytes) return false;
  const FixedHeader fixed = load_fixed(receive_buffer(buffer).data());
  if (fixed.version == v2::kVersion) return true;
  // Neither of ours, perhaps: ERR_VERS uses a credit as every message does (D2-16).
  if (fixed.version != v1::kVersion) static_cast<void>(flow_.on_receive());
  return false;
}

void Connection::fix_version(std::uint32_t version) noexcept {
  version_ = version;
  if (version == v2::kVersion && config_.version2.announce) opening_ = Opening::Properties;
  note_waiting();  // reverse calls
}

/// The server does not speak version 2: the connection goes on with version 1, if that is what it speaks
/// (V2-014).
void Connection::fall_back(rpc::VersionRange supported) noexcept {
  shared_.version_memory.add(peer_, shared_.now_ns + config_.version2.version_1_memory_ns);
  negotiation_ = v2::Negotiation::Fixed;
  if (supported.low > v1::kVersion || supported.high < v1::kVersion)
    return close(CloseReason::NoCommonVersion);
  ++counters().fallbacks;
  version_ = v1::kVersion;
  opening_ = Opening::None;
  held_ = false;
  while (spare_receive_count_ > 0) repost(spare_receives_[--spare_receive_count_]);
  if (requester_ != nullptr) requester_->on_fallback();
}

void Connection::set_credits(std::uint32_t credits) noexcept {
  credits_ = credits;
  responder_.set_grant(std::min(credits, credit_limit_));
  const auto grant = static_cast<std::uint32_t>(responder_.grant());
  flow_.set_window(std::min(grant, config_.credit_grant) + config_.credits_requested);
  if (!speaks_version_2()) return;
  while (spare_receive_count_ > 0 && posted_receives_ + staged_receives_ < flow_.most_receives())
    repost(spare_receives_[--spare_receive_count_]);
}

void Connection::limit_credits(std::uint32_t limit) noexcept {
  if (limit == credit_limit_) return;
  credit_limit_ = std::max<std::uint32_t>(limit, 1);
  if (is_open()) set_credits(credits_);
}

void Connection::admit() noexcept {
  held_ = false;
  if (is_open()) responder_.serve_pending();
}

// --- RX

void Connection::arrive(const Arrived& arrived) noexcept {
  Counters& counters = this->counters();
  const v2::DecodeResult decoded =
      v2::decode(receive_buffer(arrived.buffer).first(arrived.bytes), negotiation_);
  const v2::Header& header = decoded.header;
  const bool grant_only = decoded.status == Decode::Ok && header.grant_only();

  const auto arrival = flow_.on_receive();
  if (arrival == v2::FlowControl::Arrival::Overrun ||
      (arrival == v2::FlowControl::Arrival::Reserve && !grant_only)) {
    ++counters.credit_overruns;
    return close(CloseReason::CreditOverrun);
  }
  const bool ends_call = decoded.status == Decode::Ok && header.response() && !header.more() &&
                         (header.type == HeaderType::Msg || header.type == HeaderType::NoMsg);
  if (arrived.invalidated != rdma::Rkey{} && !ends_call) {
    ++counters.invalidation_errors;
    return close(CloseReason::InvalidationError);
  }

  switch (decoded.status) {
    case Decode::Fragment:
      ++counters.bad_fragment;
      return repost(arrived.buffer);
    case Decode::BadVersion:
      ++counters.bad_version;
      return responder_.on_call({.buffer = arrived.buffer, .bytes = {}, .header = {.fixed = header.fixed}},
                                kRefuseVersion);
    case Decode::BadError:
      ++counters.bad_error_message;
      flow_.on_error();
      wake_speakers();
      return repost(arrived.buffer);
    case Decode::NoVersion2:
      return fall_back({});
    default:
      break;
  }
  if (header.type == HeaderType::Error && decoded.status == Decode::Ok) {
    flow_.on_error();
    wake_speakers();
    take_error(header);
    if (is_open()) repost(arrived.buffer);
    return;
  }

  negotiation_ = v2::Negotiation::Fixed;
  if (version_ == 0) fix_version(v2::kVersion);
  if (!flow_.on_credits(header.credit)) ++counters.grants_capped;
  if (header.credit.limit == 0) ++counters.zero_limits;
  wake_speakers();
  if (opening_ == Opening::Properties) send_greeting();

  if (grant_only) {
    ++counters.grants_received;
    touch();
    return repost(arrived.buffer);
  }
  const bool plain = decoded.status == Decode::Ok && header.flags <= v2::kResponse &&
                     header.type != HeaderType::ConnProp && sequence_.idle();
  if (!deferred_.empty() || undelivered_) return defer(arrived);
  if (plain) return take_message(arrived, header, false);
  if (!take(arrived, decoded)) defer(arrived);
}

void Connection::defer(const Arrived& arrived) noexcept {
  deferred_.push_back(arrived);  // has room for every Receive
}

void Connection::resume_deferred() noexcept {
  awaits_assembly_ = false;
  if (undelivered_) {
    Refusal none;
    const v2::Header header{.flags = 0};
    if (!take_properties({assembly_, assembled_bytes_}, header, none)) return;
    undelivered_ = false;
    drop_assembly();
  }
  while (!deferred_.empty() && is_open()) {
    const Arrived arrived = deferred_.front();
    if (!take(arrived, v2::decode(receive_buffer(arrived.buffer).first(arrived.bytes)))) return;
    deferred_.pop_front();
    if (undelivered_) return;
  }
}

/// Steps 5 to 10 of the order of checks.
bool Connection::take(const Arrived& arrived, const v2::DecodeResult& decoded) noexcept {
  Counters& counters = this->counters();
  const v2::Header& header = decoded.header;
  const bool more_than_parts = (header.flags & ~v2::kKnownFlags) != 0 || header.type == HeaderType::NoMsg;
  Refusal refusal;
  if (decoded.status == Decode::BadType) {
    ++counters.bad_procedure;
    refusal = v2::Error{.code = v2::ErrorCode::InvalHtype};
  } else if (decoded.status == Decode::BadFlags && more_than_parts) {
    ++counters.bad_flags;
    refusal = kRefuseFlags;
  }
  if (refusal) {
    // A hole in a sequence must not go unnoticed.
    if (!sequence_.in_progress()) return fault(arrived, header, *refusal), true;
    sequence_.give_up();
    return break_sequence(arrived, header, *refusal), true;
  }

  if (header.more() && !sequence_.in_progress() && assembly_ == nullptr) {
    assembly_ = shared_.assembly_memory.acquire();
    assembled_bytes_ = 0;
    if (assembly_ == nullptr) {
      ++counters.waits_assembly;
      if (!std::exchange(awaits_assembly_, true))
        shared_.awaiting_assembly[shared_.awaiting_assembly_count++] = this;
      return false;
    }
  }
  const Step step = sequence_.next({header.fixed.xid, header.type, header.response()}, header.more());
  if (step == Step::Broken) {
    ++counters.broken_sequences;
    return break_sequence(arrived, header, kRefuseFlags), true;
  }
  if (step == Step::Dropped) {
    ++counters.parts_dropped;
    drop_assembly();
    return repost(arrived.buffer), true;
  }

  switch (decoded.status) {
    case Decode::BadXdr:
      ++counters.bad_chunk_lists;
      refusal = kRefuseXdr;
      break;
    case Decode::TooManySegments:
      ++counters.too_many_segments;
      refusal = v2::Error{.code = v2::ErrorCode::Segments, .maximum = own_parameters().max_segments};
      break;
    case Decode::BadFlags:
      ++counters.bad_flags;
      refusal = kRefuseFlags;
      break;
    default:
      break;
  }
  if (refusal) {
    sequence_.give_up();
    drop_assembly();
    return fault(arrived, header, *refusal), true;
  }
  if (step != Step::Whole) return take_part(arrived, header, step);
  if (header.type != HeaderType::ConnProp) return take_message(arrived, header, false), true;
  if (!take_properties(header.properties, header, refusal)) return false;
  if (refusal) return fault(arrived, header, *refusal), true;
  return repost(arrived.buffer), true;
}

/// Parts are copied out, so that no Receive is held while a message grows (D2-41).
bool Connection::take_part(const Arrived& arrived, const v2::Header& header, Step step) noexcept {
  Counters& counters = this->counters();
  const bool properties = header.type == HeaderType::ConnProp;
  const auto part = properties ? header.properties
                               : std::span<const std::byte>(receive_buffer(arrived.buffer))
                                     .first(arrived.bytes)
                                     .subspan(header.header_bytes);
  const std::size_t limit = properties ? kMaxPropertyBytes : shared_.assembly_memory.buffer_bytes();
  if (assembled_bytes_ + part.size() > std::min(limit, shared_.assembly_memory.buffer_bytes())) {
    ++counters.call_too_long;
    sequence_.give_up();
    drop_assembly();
    return fault(arrived, header, kRefuseSystem), true;
  }
  ++counters.parts_received;
  std::memcpy(assembly_ + assembled_bytes_, part.data(), part.size());
  assembled_bytes_ += static_cast<std::uint32_t>(part.size());
  last_part_ns_ = shared_.now_ns;
  if (step != Step::Last) return repost(arrived.buffer), true;
  if (!properties) return take_message(arrived, header, true), true;

  Refusal refusal;
  undelivered_ = !take_properties({assembly_, assembled_bytes_}, header, refusal);
  if (!undelivered_) drop_assembly();
  if (refusal) return fault(arrived, header, *refusal), true;
  return repost(arrived.buffer), true;
}

/// Step 10: the RPC message has to be what its header says.
void Connection::take_message(const Arrived& arrived, const v2::Header& header, bool assembled) noexcept {
  Counters& counters = this->counters();
  ReceivedMessage message{.buffer = arrived.buffer,
                          .bytes = receive_buffer(arrived.buffer).first(arrived.bytes)};
  // From the wire again: what was stored word by word a moment ago is slow to read as a whole.
  message.header.fixed = load_fixed(message.bytes.data());
  message.header.no_msg = header.type == HeaderType::NoMsg;
  if (!header.chunks.empty()) message.header.chunks = header.chunks;
  message.header.header_bytes = header.header_bytes;
  message.header.invalidate = header.response() ? arrived.invalidated : header.invalidate;
  if (assembled) {
    message.assembly = std::exchange(assembly_, nullptr);
    message.assembled_bytes = assembled_bytes_;
  }
  Refusal refusal;
  if (!message.header.no_msg) {
    const auto payload = message.payload();
    const auto expected = header.response() ? rpc::MessageType::Reply : rpc::MessageType::Call;
    if (payload.size() < 2 * xdr::kUnit) {
      ++counters.no_payload;
      refusal = kRefuseXdr;
    } else if (static_cast<rpc::Xid>(xdr::load_u32(payload.data())) != header.fixed.xid) {
      ++counters.xid_mismatch;
      refusal = kRefuseXdr;
    } else if (const std::uint32_t type = xdr::load_u32(payload.data() + xdr::kUnit);
               type != static_cast<std::uint32_t>(expected)) {
      ++counters.direction_mismatch;
      refusal = type <= 1 ? kRefuseFlags : kRefuseXdr;
    }
  }
  if (header.response() && !refusal) return to_requester(message);
  if (!header.response() && !refusal && config_.active) {
    // Calls against the flow, at the level that we have announced (D2-27).
    const v2::ReverseSupport level = own_parameters().reverse;
    const ChunkLists& chunks = header.chunks;
    if (level == v2::ReverseSupport::None || config_.credit_grant == 0) {
      ++counters.direction_not_served;
      refusal = kRefuseSystem;
    } else if (level == v2::ReverseSupport::Inline && !(chunks.reads.empty() && chunks.writes.empty())) {
      ++counters.reverse_chunks_refused;
      refusal =
          v2::Error{.code = chunks.reads.empty() ? v2::ErrorCode::ReplyResource : v2::ErrorCode::ReadChunks};
    } else if (level == v2::ReverseSupport::Inline) {
      message.header.chunks.reply.reset();
    }
  }
  if (!header.response() && config_.credit_grant > 0 && !refusal)
    return responder_.on_call(message, std::nullopt);
  if (message.assembly != nullptr) shared_.assembly_memory.release(message.assembly);
  fault(arrived, header, refusal.value_or(kRefuseSystem));
}

void Connection::take_error(const v2::Header& header) noexcept {
  const bool usable = header.flags == v2::kResponse;
  if (!usable) {
    ++counters().bad_error_message;
    return;
  }
  if (header.error.code == v2::ErrorCode::Vers && negotiating()) return fall_back(header.error.supported);
  negotiation_ = v2::Negotiation::Fixed;
  if (requester_ != nullptr)
    requester_->on_error(header.fixed.xid, header.error);
  else
    ++counters().unknown_xid;
}

/// Nothing lifts a limit of ours, or lets the message path run in pieces without end (V2-065).
void Connection::apply(const v2::Agreement& agreement) noexcept {
  agreement_ = agreement;
  agreement_.send_bytes = std::clamp(agreement.send_bytes, v2::kLeastThreshold,
                                     std::max(v2::kLeastThreshold, own_parameters().max_send_bytes));
  agreement_.max_segment_bytes = std::max(agreement.max_segment_bytes, v2::kLeastSegmentBytes);
}

/// False: the sink has no room. A refusal is for the sender.
bool Connection::take_properties(std::span<const std::byte> body, const v2::Header& header,
                                 Refusal& refusal) noexcept {
  Counters& counters = this->counters();
  const auto properties = header.response() ? std::nullopt : v2::decode_properties(body);
  if (!properties) {
    ++counters.bad_properties;
    refusal = kRefuseXdr;
    return true;
  }
  if (properties_told_ && !properties->host_authentication) {
    ++counters.late_properties;
    return true;
  }
  if (property_sink_ != nullptr) {
    if (!property_sink_(property_context_, *this, body, !properties_told_)) return false;
  } else if (!properties_told_) {
    apply(v2::agree(own_parameters(), *properties, &counters.clamped_properties));
  }
  ++counters.properties_received;
  if (!properties_told_) peer_parameters_ = *properties;
  properties_told_ = true;
  return true;
}

void Connection::fault(const Arrived& arrived, rpc::Xid xid, bool response, const v2::Error& error) noexcept {
  if (!response)
    return responder_.on_call(
        {.buffer = arrived.buffer, .bytes = {}, .header = {.fixed = {.xid = xid, .version = v2::kVersion}}},
        error);
  ++counters().faulty_responses;
  if (requester_ != nullptr && requester_->is_outstanding(xid)) requester_->on_unusable(xid);
  repost(arrived.buffer);
}

/// One ERROR for each XID involved, the sequence's and the intruder's (D2-40). Never more of them than
/// Receives, but for one: what is answered keeps its Receive.
void Connection::break_sequence(const Arrived& arrived, const v2::Header& header,
                                const v2::Error& error) noexcept {
  const v2::InboundSequence::Identity broken = sequence_.broken();
  drop_assembly();
  const bool same = broken.xid == header.fixed.xid && broken.response == header.response();
  if (same) return fault(arrived, header, error);
  if (broken.response) {
    if (requester_ != nullptr && requester_->is_outstanding(broken.xid)) requester_->on_unusable(broken.xid);
    return fault(arrived, header, error);
  }
  if (header.response()) {
    ++counters().faulty_responses;
    if (requester_ != nullptr && requester_->is_outstanding(header.fixed.xid))
      requester_->on_unusable(header.fixed.xid);
    return fault(arrived, broken.xid, false, kRefuseFlags);
  }
  fault({.buffer = kNoReceive}, broken.xid, false, kRefuseFlags);
  if (is_open()) fault(arrived, header, error);
}

void Connection::drop_assembly() noexcept {
  if (assembly_ != nullptr) shared_.assembly_memory.release(std::exchange(assembly_, nullptr));
}

// --- TX

bool Connection::may_speak(Speaker who) noexcept {
  const bool opens = opening_ == Opening::None ||
                     (opening_ == Opening::Properties && who.kind == Speaker::Kind::Properties) ||
                     (opening_ == Opening::Call && who.kind == Speaker::Kind::Call);
  const bool turn = speaker_.kind == Speaker::Kind::None || speaker_ == who;
  // A call against the flow leaves the last credit to replies (D2-17). A client with a window of two keeps
  // one credit open without granting another: a single call may use it while no reply is due.
  const bool alone = flow_.peer_limit() <= v2::FlowControl::kMinWindow && responder_.busy_slots() == 0 &&
                     (requester_ == nullptr || requester_->awaited_replies() == 0);
  const bool yields =
      who.kind == Speaker::Kind::Call && !config_.active && speaker_.kind == Speaker::Kind::None && !alone;
  if (opens && turn && flow_.balance() >= (yields ? 2 : 1)) return true;
  ++counters().waits_credit;
  tx_waiting_ = true;
  return false;
}

std::optional<std::uint16_t> Connection::begin_control(Speaker speaker) noexcept {
  if (free_control_count_ == 0) {
    ++counters().waits_send_queue;
    tx_waiting_ = true;
    return std::nullopt;
  }
  SendStage& stage = this->stage();
  if (!stage_fits(1) || stage.mark().sges + stage.max_sge() > SendStage::kMaxSges) {
    flush_stage();
    if (!stage_fits(1)) {
      ++counters().waits_send_queue;
      note_waiting();
      return std::nullopt;
    }
  }
  const std::uint16_t index = free_controls_[--free_control_count_];
  control_speakers_[index] = speaker;
  stage.begin(rdma::SendOpcode::Send, wr_id(WrKind::ControlSent, index), rdma::kSignaled);
  return index;
}

void Connection::on_control_sent(std::uint16_t index) noexcept {
  free_controls_[free_control_count_++] = index;
  const Speaker speaker = control_speakers_[index];
  switch (speaker.kind) {
    case Speaker::Kind::None:
      break;
    case Speaker::Kind::Reply:
      responder_.on_part_sent(speaker.index);
      break;
    case Speaker::Kind::Call:
      requester_->on_part_sent(speaker.index);
      break;
    case Speaker::Kind::Properties:
      if (outgoing_posted_ > 0 && --outgoing_posted_ == 0 && outgoing_ != nullptr &&
          (outgoing_sent_ == outgoing_bytes_ || !is_open()))
        shared_.assembly_memory.release(std::exchange(outgoing_, nullptr));
      break;
  }
  if (!is_open()) return;
  wake_speakers();
  touch();  // a grant may have waited for the buffer
}

bool Connection::stage_parts(const Continued& message, std::uint64_t& sent, std::uint32_t& posted) noexcept {
  const std::size_t header_bytes = part_header_bytes(message.type);
  const std::size_t pieces = shared_.stage.max_sge() - 1;
  for (;;) {
    const std::uint64_t left = message.payload_bytes - sent;
    const std::uint64_t at_hand = bytes_in_pieces(message.payload, sent, pieces);
    if (message.last_header_bytes + left <= send_bytes() && at_hand >= left) return true;
    if (!may_speak(message.speaker)) return false;
    const auto control = begin_control(message.speaker);
    if (!control) return false;

    // The last part has the chunks, and is never empty.
    const std::uint64_t bytes =
        std::min({send_bytes() - header_bytes, left - kPartUnit, at_hand}) / kPartUnit * kPartUnit;
    const v2::CreditWord credit = offer();
    const v2::Prefix prefix{
        .xid = message.xid, .credit = credit, .flags = v2::kMore | (message.response ? v2::kResponse : 0u)};
    xdr::Writer writer(control_buffer(*control));
    if (message.type == HeaderType::ConnProp)
      v2::encode_connprop(writer, prefix);
    else
      v2::encode_call(writer, prefix, message.type, {}, {});
    SendStage& stage = shared_.stage;
    stage.append(
        {control_buffer(*control).data(), static_cast<std::uint32_t>(header_bytes), control_region_.lkey});
    append_pieces(stage, message.payload, sent, bytes);
    speaker_ = message.speaker;
    count_send(credit);
    ++counters().parts_sent;
    counters().inline_bytes_sent += header_bytes + bytes;
    sent += bytes;
    ++posted;
  }
}

bool Connection::append_payload(std::span<const rdma::Sge> payload, std::uint64_t from) noexcept {
  return append_pieces(shared_.stage, payload, from, ~std::uint64_t{0});
}

void Connection::send_grant() noexcept {
  const auto control = begin_control({});
  if (!control) return;
  const v2::CreditWord credit = offer();
  xdr::Writer writer(control_buffer(*control));
  v2::encode_grant(writer, credit);
  shared_.stage.append(
      {control_buffer(*control).data(), static_cast<std::uint32_t>(writer.position()), control_region_.lkey});
  count_send(credit);
  ++counters().grants_sent;
}

/// Properties 1 to 5, in one message that every peer can receive (V2-058).
void Connection::send_greeting() noexcept {
  const Speaker speaker{Speaker::Kind::Properties, 0};
  if (!may_speak(speaker)) return;
  const auto control = begin_control(speaker);
  if (!control) return;
  const v2::CreditWord credit = offer();
  xdr::Writer writer(control_buffer(*control));
  v2::encode_connprop(writer, {.xid = static_cast<rpc::Xid>(++own_xid_), .credit = credit});
  if (config_.version2.announce)
    v2::encode_parameters(writer, own_parameters());
  else
    writer.u32(0);
  shared_.stage.append(
      {control_buffer(*control).data(), static_cast<std::uint32_t>(writer.position()), control_region_.lkey});
  opening_ = Opening::None;
  wake_speakers();
  count_send(credit);
  ++counters().properties_sent;
}

void Connection::greeted() noexcept {
  opening_ = config_.version2.announce ? Opening::Properties : Opening::None;
  tx_waiting_ = true;
}

bool Connection::send_host_authentication(std::span<const std::byte> octets) noexcept {
  const std::size_t bytes = 3 * xdr::kUnit + xdr::kUnit + xdr::padded(octets.size());
  if (!is_open() || !speaks_version_2() || outgoing_ != nullptr ||
      bytes > std::min<std::size_t>(kMaxPropertyBytes, shared_.assembly_memory.buffer_bytes()))
    return false;
  outgoing_ = shared_.assembly_memory.acquire();
  if (outgoing_ == nullptr) return false;
  xdr::Writer writer({outgoing_, bytes});
  v2::encode_host_authentication(writer, octets);
  outgoing_bytes_ = static_cast<std::uint32_t>(writer.position());
  outgoing_sent_ = 0;
  ++own_xid_;
  send_properties();
  return true;
}

void Connection::send_properties() noexcept {
  if (outgoing_sent_ == outgoing_bytes_) return;  // waits for its completions
  const Speaker speaker{Speaker::Kind::Properties, 1};
  const rdma::Sge body{outgoing_, outgoing_bytes_, shared_.assembly_memory.lkey()};
  const auto xid = static_cast<rpc::Xid>(own_xid_);
  if (!stage_parts({.speaker = speaker,
                    .xid = xid,
                    .type = HeaderType::ConnProp,
                    .payload = {&body, 1},
                    .payload_bytes = outgoing_bytes_,
                    .last_header_bytes = v2::kPrefixBytes},
                   outgoing_sent_, outgoing_posted_) ||
      !may_speak(speaker))
    return;
  const auto control = begin_control(speaker);
  if (!control) return;
  const v2::CreditWord credit = offer();
  xdr::Writer writer(control_buffer(*control));
  v2::encode_connprop(writer, {.xid = xid, .credit = credit});
  shared_.stage.append(
      {control_buffer(*control).data(), static_cast<std::uint32_t>(writer.position()), control_region_.lkey});
  append_payload({&body, 1}, outgoing_sent_);
  outgoing_sent_ = outgoing_bytes_;
  ++outgoing_posted_;
  count_send(credit);
  ++counters().properties_sent;
  end_sequence();
}

// --- Timers

void Connection::tick() noexcept {
  if (!is_open() || !speaks_version_2()) return;
  const Version2Config& timers = config_.version2;
  const auto passed = [this](std::uint64_t since, std::uint64_t limit) {
    return shared_.now_ns > since && shared_.now_ns - since > limit;
  };
  // Connections are made outside of turns, where the clock may stand still: its first tick starts the timer.
  if (negotiating() && opening_ == Opening::None && asked_ns_ == 0) asked_ns_ = shared_.now_ns;
  if (negotiating() && asked_ns_ > 0 && passed(asked_ns_, timers.first_answer_ns))
    return close(CloseReason::NoAnswer);
  if (sequence_.in_progress() && passed(last_part_ns_, timers.sequence_idle_ns)) {
    ++counters().broken_sequences;
    return close(CloseReason::SequenceTimeout);
  }
  if (undelivered_ || (!deferred_.empty() && !awaits_assembly_)) resume_deferred();
  if (timers.keep_alive_ns > 0 && !negotiating() && flow_.balance() > 0 &&
      passed(last_send_ns_, timers.keep_alive_ns))
    send_grant();
}

}  // namespace sluice::rpcrdma
