// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/intake.h"

#include <cstring>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::rpcrdma {

using v2::Decode;
using v2::HeaderType;

void IntakeV2::open() noexcept {
  static_cast<void>(SLUICE_INVARIANT(assembly_ == nullptr, pool_balance));
  static_cast<void>(SLUICE_INVARIANT(deferred_.empty() && wait_ == Wait::Nothing, list_membership));
  sequence_ = {};
  assembly_ = nullptr;
  deferred_.clear();
  wait_ = Wait::Nothing;
}

void IntakeV2::on_closed() noexcept {
  link_.set_shortcut(Shortcut::None);
  drop_assembly();
  link_.context().assembly.forget(session_.assembly_account(), *this);
  deferred_.clear();
  wait_ = Wait::Nothing;
}

void IntakeV2::drop_assembly() noexcept {
  link_.context().assembly.release(std::exchange(assembly_, nullptr));
}

std::span<const std::byte> IntakeV2::message_of(Arrived arrived) noexcept {
  return link_.receive_buffer(arrived.buffer).first(arrived.bytes);
}

v2::DecodeResult IntakeV2::decode(Arrived arrived) noexcept {
  return v2::decode(message_of(arrived),
                    link_.negotiating() ? v2::Negotiation::Open : v2::Negotiation::Fixed);
}

// --- Steps 1 to 4 of the order of checks

void IntakeV2::take_credits(v2::CreditWord credit) noexcept {
  Counters& counters = link_.counters();
  if (!session_.flow().on_credits(credit)) ++counters.grants_capped;
  if (credit.limit() == 0) ++counters.zero_limits;
  link_.notify_waiting_senders();
  session_.greet();
}

/// Checks that the peer had a credit for the message. Returns false if the link was closed.
inline bool IntakeV2::within_credits(bool grant_only) noexcept {
  const auto arrival = session_.flow().on_receive();
  if (arrival == v2::FlowControl::Arrival::Credited) [[likely]]
    return true;
  if (arrival == v2::FlowControl::Arrival::Reserve && grant_only) return true;
  ++link_.counters().credit_overruns;
  link_.close(CloseReason::CreditOverrun);
  return false;
}

/// Checks that only the end of a reply invalidates a handle. Returns false if the link was closed.
inline bool IntakeV2::may_have_invalidated(Arrived arrived, bool ends_call) noexcept {
  if (arrived.invalidated == rdma::Rkey{} || ends_call) [[likely]]
    return true;
  ++link_.counters().invalidation_errors;
  link_.close(CloseReason::InvalidationError);
  return false;
}

[[gnu::noinline]] void IntakeV2::arrive_other(Arrived arrived) noexcept {
  Counters& counters = link_.counters();
  const v2::DecodeResult decoded = decode(arrived);
  const v2::Header& header = decoded.header;
  const bool ok = decoded.status == Decode::Ok;
  const bool grant_only = ok && header.grant_only();
  const bool ends_call = ok && header.response() && !header.more() &&
                         (header.type == HeaderType::Msg || header.type == HeaderType::NoMsg);
  if (!within_credits(grant_only) || !may_have_invalidated(arrived, ends_call)) return;
  if (take_without_order(arrived, decoded)) return;

  if (link_.version_state() != VersionState::Version2) version_.settle(VersionState::Version2);
  take_credits(header.credit);
  if (grant_only) {
    ++counters.grants_received;
    if (header.invalidate != rdma::Rkey{}) ++counters.grants_with_handle;  // D2-18
    link_.touch();
    return link_.repost(arrived.buffer);
  }
  if (wait_ != Wait::Nothing) return defer(arrived);
  if (!take(arrived, decoded)) defer(arrived);
}

/// Handles messages whose credit word does not count: fragments, wrong versions, and ERROR, which may arrive
/// between the parts of a continued message (D2-38). Returns false for any other message.
bool IntakeV2::take_without_order(Arrived arrived, const v2::DecodeResult& decoded) noexcept {
  Counters& counters = link_.counters();
  const v2::Header& header = decoded.header;
  switch (decoded.status) {
    case Decode::Fragment:
      ++counters.bad_fragment;
      return link_.repost(arrived.buffer), true;
    case Decode::BadVersion:
      ++counters.bad_version;
      roles_.responder().on_call({.buffer = arrived.buffer, .bytes = {}, .header = {.fixed = header.fixed}},
                                 kRefuseVersion);
      return true;
    case Decode::BadError:
      ++counters.bad_error_message;
      session_.flow().on_error();
      link_.notify_waiting_senders();
      return link_.repost(arrived.buffer), true;
    case Decode::NoVersion2:
      return version_.fall_back({}), true;
    default:
      break;
  }
  if (header.type != HeaderType::Error || decoded.status != Decode::Ok) return false;
  session_.flow().on_error();
  link_.notify_waiting_senders();
  take_error(header);
  if (link_.is_open()) link_.repost(arrived.buffer);
  return true;
}

void IntakeV2::take_error(const v2::Header& header) noexcept {
  const bool usable = header.flags == v2::kResponse;
  if (!usable) {
    ++link_.counters().bad_error_message;
    return;
  }
  if (header.error.code == v2::ErrorCode::Vers && link_.negotiating())
    return version_.fall_back(header.error.supported);
  if (link_.negotiating()) version_.settle(VersionState::Version2);
  if (roles_.requester() != nullptr)
    roles_.requester()->on_error(header.fixed.xid, header.error);
  else
    ++link_.counters().unknown_xid;
}

// --- Deferred messages

/// Defers a message. The ring has room for every Receive.
void IntakeV2::defer(Arrived arrived) noexcept {
  const bool deferred = deferred_.push_back(arrived);
  if (!SLUICE_INVARIANT(deferred, ring_index)) link_.close(CloseReason::InternalError);
}

void IntakeV2::resume() noexcept {
  if (wait_ == Wait::JoinedProperties) {
    static_cast<void>(SLUICE_INVARIANT(assembly_ != nullptr, pool_balance));
    Refusal none;
    const v2::Header header{.flags = 0};
    if (!session_.take_properties({assembly_, assembled_bytes_}, header, none)) return;
    drop_assembly();
  }
  if (wait_ == Wait::AssemblyMemory) first_part_ns_ += link_.context().now_ns() - waiting_since_ns_;
  wait_ = Wait::Nothing;
  while (!deferred_.empty() && link_.is_open()) {
    const Arrived arrived = deferred_.front();
    if (!take(arrived, decode(arrived))) return;
    if (!link_.is_open()) return;  // on_closed() has cleared the ring
    deferred_.pop_front();
    if (wait_ != Wait::Nothing) return;
  }
}

void IntakeV2::tick() noexcept {
  const std::uint64_t now_ns = link_.context().now_ns();
  const std::uint64_t in_all_ns = link_.config().progress_timeout_ns;
  // Time spent waiting for memory is not the peer's fault.
  const bool awaits_part = sequence_.in_progress() && wait_ != Wait::AssemblyMemory;
  if (awaits_part && now_ns > last_part_ns_ &&
      (now_ns - last_part_ns_ > link_.config().version2.sequence_idle_ns ||
       (in_all_ns > 0 && now_ns - first_part_ns_ > in_all_ns))) {
    ++link_.counters().broken_sequences;
    return link_.close(CloseReason::SequenceTimeout);
  }
  if (wait_ == Wait::PropertiesRoom || wait_ == Wait::JoinedProperties) resume();
  note_settled();
}

// --- Steps 5 to 10

bool IntakeV2::take(Arrived arrived, const v2::DecodeResult& decoded) noexcept {
  const v2::Header& header = decoded.header;
  if (refuse_before_sequence(arrived, decoded)) return true;
  const bool part = header.more() || sequence_.in_progress();
  // Before admission, memory is available only for the exchange that leads to admission.
  const bool to_refuse = part && !sequence_.in_progress() && header.type != HeaderType::ConnProp &&
                         roles_.responder().holds_calls();
  if (part && !to_refuse && !has_assembly(part_of(arrived, header).size())) return false;
  const Step step = sequence_.next({header.fixed.xid, header.type, header.response()}, header.more());
  if (step == Step::Broken) {
    ++link_.counters().broken_sequences;
    return break_sequence(arrived, header, kRefuseFlags), true;
  }
  if (step == Step::Dropped) {
    ++link_.counters().parts_dropped;
    drop_assembly();
    return link_.repost(arrived.buffer), true;
  }
  Refusal refusal = content_refusal(decoded);
  if (to_refuse && !refusal) {
    ++link_.counters().parts_before_admission;
    refusal = kRefuseSystem;
  }
  if (refusal) {
    sequence_.give_up();
    drop_assembly();
    return fault(arrived, header, *refusal), true;
  }
  if (step != Step::Whole) return take_part(arrived, header, step);
  if (header.type != HeaderType::ConnProp) return take_message(arrived, header, false), true;
  if (!session_.take_properties(header.properties, header, refusal)) {
    wait_ = Wait::PropertiesRoom;
    return false;
  }
  if (refusal) return fault(arrived, header, *refusal), true;
  return link_.repost(arrived.buffer), true;
}

/// Refuses messages that cannot be attributed to a sequence. Returns true if the message was refused.
bool IntakeV2::refuse_before_sequence(Arrived arrived, const v2::DecodeResult& decoded) noexcept {
  Counters& counters = link_.counters();
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
  if (!refusal) return false;
  // A gap in a sequence must not remain undetected.
  if (!sequence_.in_progress()) return fault(arrived, header, *refusal), true;
  sequence_.give_up();
  return break_sequence(arrived, header, *refusal), true;
}

std::span<const std::byte> IntakeV2::part_of(Arrived arrived, const v2::Header& header) noexcept {
  if (header.type == HeaderType::ConnProp) return header.properties;
  const std::span<const std::byte> message = link_.receive_buffer(arrived.buffer).first(arrived.bytes);
  return message.subspan(smaller_of<std::size_t>(header.header_bytes, message.size()));
}

/// Provides memory for the sequence that this part begins or continues. A sequence that outgrows a small
/// buffer moves to a large one. Returns false if it has to wait for memory.
bool IntakeV2::has_assembly(std::size_t part_bytes) noexcept {
  SharedMemory& memory = link_.context().assembly;
  const std::size_t held = sequence_.in_progress() ? assembled_bytes_ : 0;
  SLUICE_INVARIANT_DEBUG(assembly_ == nullptr || held <= memory.bytes_of(assembly_), buffer_bounds);
  const std::size_t wanted = smaller_of(held + part_bytes, memory.most_bytes());
  if (assembly_ != nullptr && wanted <= memory.bytes_of(assembly_)) return true;
  if (sequence_.in_progress() && assembly_ == nullptr) return true;  // its parts are dropped
  std::byte* const larger = memory.acquire(session_.assembly_account(), wanted);
  if (larger == nullptr) return await_assembly(wanted), false;
  if (held > 0) std::memcpy(larger, assembly_, held);
  memory.release(std::exchange(assembly_, larger));
  if (held == 0) assembled_bytes_ = 0;
  return true;
}

void IntakeV2::await_assembly(std::size_t bytes) noexcept {
  ++link_.counters().waits_assembly;
  wait_ = Wait::AssemblyMemory;
  waiting_since_ns_ = link_.context().now_ns();
  link_.context().assembly.await(session_.assembly_account(), bytes, *this);
}

Refusal IntakeV2::content_refusal(const v2::DecodeResult& decoded) noexcept {
  Counters& counters = link_.counters();
  switch (decoded.status) {
    case Decode::BadXdr:
      ++counters.bad_chunk_lists;
      return kRefuseXdr;
    case Decode::TooManySegments:
      ++counters.too_many_segments;
      return v2::Error{.code = v2::ErrorCode::Segments, .maximum = session_.own_parameters().max_segments};
    case Decode::TooManyWrites:
      ++counters.too_many_chunks;
      return too_many_write_chunks(link_.config().version2);
    case Decode::BadFlags:
      ++counters.bad_flags;
      return kRefuseFlags;
    default:
      return std::nullopt;
  }
}

/// Copies a part into assembly memory, so that no Receive is held while a message grows (D2-41).
bool IntakeV2::take_part(Arrived arrived, const v2::Header& header, Step step) noexcept {
  const bool properties = header.type == HeaderType::ConnProp;
  const auto part = part_of(arrived, header);
  std::size_t room = link_.context().assembly.most_bytes();
  if (properties)
    room = smaller_of<std::size_t>(
        room, roles_.responder().holds_calls() ? kMaxStrangersPropertyBytes : kMaxPropertyBytes);
  if (assembled_bytes_ + part.size() > room) {
    ++link_.counters().call_too_long;
    sequence_.give_up();
    drop_assembly();
    return fault(arrived, header, kRefuseSystem), true;
  }
  ++link_.counters().parts_received;
  if (header.more() && header.invalidate != rdma::Rkey{}) ++link_.counters().parts_with_handle;  // D2-39
  if (!SLUICE_INVARIANT(assembly_ != nullptr &&
                            assembled_bytes_ + part.size() <= link_.context().assembly.bytes_of(assembly_),
                        buffer_bounds))
    return link_.close(CloseReason::InternalError), true;
  std::memcpy(assembly_ + assembled_bytes_, part.data(), part.size());
  assembled_bytes_ += static_cast<std::uint32_t>(part.size());
  last_part_ns_ = link_.context().now_ns();
  if (step == Step::First) first_part_ns_ = last_part_ns_;
  if (step != Step::Last) return link_.repost(arrived.buffer), true;
  if (!properties) return take_message(arrived, header, true), true;

  Refusal refusal;
  if (session_.take_properties({assembly_, assembled_bytes_}, header, refusal))
    drop_assembly();
  else
    wait_ = Wait::JoinedProperties;
  if (refusal) return fault(arrived, header, *refusal), true;
  return link_.repost(arrived.buffer), true;
}

// --- Faults

void IntakeV2::fault(Arrived arrived, rpc::Xid xid, bool response, const v2::Error& error) noexcept {
  if (!response)
    return roles_.responder().on_call(
        {.buffer = arrived.buffer, .bytes = {}, .header = {.fixed = {.xid = xid, .version = v2::kVersion}}},
        error);
  ++link_.counters().faulty_responses;
  if (roles_.awaits_reply(xid)) roles_.requester()->on_unusable(xid);
  link_.repost(arrived.buffer);
}

/// Sends one ERROR for each XID involved, that of the sequence and that of the message that broke it (D2-40).
/// At most one more ERROR than Receives can be in progress because each answered message keeps its Receive.
void IntakeV2::break_sequence(Arrived arrived, const v2::Header& header, const v2::Error& error) noexcept {
  const v2::InboundSequence::Identity broken = sequence_.broken();
  drop_assembly();
  const bool same = broken.xid == header.fixed.xid && broken.response == header.response();
  if (same) return fault(arrived, header, error);
  if (broken.response) {
    if (roles_.awaits_reply(broken.xid)) roles_.requester()->on_unusable(broken.xid);
    return fault(arrived, header, error);
  }
  if (header.response()) {
    ++link_.counters().faulty_responses;
    if (roles_.awaits_reply(header.fixed.xid)) roles_.requester()->on_unusable(header.fixed.xid);
    return fault(arrived, broken.xid, false, kRefuseFlags);
  }
  fault({.buffer = kNoReceive}, broken.xid, false, kRefuseFlags);
  if (link_.is_open()) fault(arrived, header, error);
}

}  // namespace sluice::rpcrdma
