// SPDX-License-Identifier: Apache-2.0
//
// Version 2 on one connection, in the order of session.h (draft, sections 4.2, 4.3, 5 and 6.3).
#include "dataplane/rpcrdma/v2/session.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/version_rules.h"

namespace sluice::rpcrdma::v2 {
namespace {

/// Number of our greeting among senders of properties, and of host authentication.
constexpr Sender kGreeting{Sender::Kind::Properties, 0};
constexpr Sender kHostAuthentication{Sender::Kind::Properties, 1};

/// Parts end on XDR units, so that a receiver may join them word by word (D2-30).
constexpr std::uint64_t kPartUnit = xdr::kUnit;

std::size_t part_header_bytes(HeaderType type) noexcept {
  return type == HeaderType::ConnProp ? kPrefixBytes : kMinMsgHeaderBytes;
}

/// Returns how many bytes after `from` the next `pieces` pieces of the payload hold.
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

}  // namespace

// --- Setup and teardown

void Session::open() noexcept {
  const ConnectionConfig& config = link_.config();
  static_cast<void>(SLUICE_INVARIANT(drained() && shared_bytes() == 0, pool_balance));
  static_cast<void>(SLUICE_INVARIANT(outgoing_ == nullptr, pool_balance));
  set_sender({});
  grant_put_off_ = false;
  granted_ns_ = 0;
  control_.reset();
  flow_.open(config.credit_grant + config.credits_requested, config.active);
  agreement_ = {};
  agreement_.send_bytes = smaller_of(kDefaultSendBytes, own_parameters().max_send_bytes);
  heard_properties_ = false;
  peer_parameters_ = {};
  outgoing_posted_ = 0;
}

void Session::begin(Opening opening) noexcept {
  opening_ = opening;
  hold_back();
  on_version();
}

void Session::on_version() noexcept {
  bound_receives();
  if (link_.speaks_version_2()) link_.set_send_bytes(agreement_.send_bytes);
}

/// Limits the Receives in use to the window of credits if every message uses a credit.
void Session::bound_receives() noexcept {
  link_.bound_receives(link_.rules().credit_per_message ? flow_.most_receives() : Receives::kNoBound);
}

void Session::set_window(std::uint32_t credits) noexcept {
  flow_.set_window(credits);
  bound_receives();
}

void Session::on_closed() noexcept {
  link_.context().assembly.forget_all(assembly_account_);
  // If Sends are posted, the driver uses the buffer until they are flushed.
  if (outgoing_posted_ == 0) link_.context().assembly.release(std::exchange(outgoing_, nullptr));
}

void Session::tick() noexcept {
  const std::uint64_t keep_alive_ns = link_.config().version2.keep_alive_ns;
  const std::uint64_t now_ns = link_.context().now_ns();
  const std::uint64_t sent_ns = larger_of(link_.last_post_ns(), granted_ns_);
  if (link_.is_open() && keep_alive_ns > 0 && !link_.negotiating() && flow_.balance() > 0 &&
      now_ns > sent_ns && now_ns - sent_ns > keep_alive_ns)
    send_grant();
}

// --- Order of senders

/// Slow path of may_send_now(): a continued message is in progress, the last credit is requested, or the
/// opening is not complete.
bool Session::may_send_out_of_turn(Sender sender) noexcept {
  const bool opens = opening_ == Opening::Complete ||
                     (opening_ == Opening::AwaitingProperties && sender.kind == Sender::Kind::Properties) ||
                     (opening_ == Opening::AwaitingCall && sender.kind == Sender::Kind::Call);
  const bool turn = sender_.kind == Sender::Kind::None || sender_ == sender;
  // A call of the reverse direction leaves the last credit to replies (D2-17). A client with a window of two
  // keeps one credit open without granting another, so a single call may use it while no reply is due.
  const bool yields = sender.kind == Sender::Kind::Call && !link_.config().active &&
                      sender_.kind == Sender::Kind::None &&
                      !(flow_.peer_limit() <= FlowControl::kMinWindow && owner_.no_calls_in_progress());
  if (opens && turn && flow_.balance() >= (yields ? 2 : 1)) return true;
  ++link_.counters().waits_credit;
  link_.wait_for_notice();
  return false;
}

/// Takes a control buffer and starts its Send. Returns nothing if there is no room; the sender is then
/// retried.
std::optional<std::uint16_t> Session::begin_control(Sender sender) noexcept {
  if (!control_.any_free()) {
    ++link_.counters().waits_send_queue;
    link_.wait_for_notice();
    return std::nullopt;
  }
  SendStage& stage = link_.stage();
  if (!link_.stage_fits(1) || stage.mark().sges() + stage.max_sge() > SendStage::kMaxSges) {
    link_.flush_stage();
    if (!link_.stage_fits(1)) {
      link_.wait_for_send_room();
      return std::nullopt;
    }
  }
  const std::uint16_t index = control_.acquire(sender);
  const bool begun =
      stage.begin(rdma::SendOpcode::Send, link_.wr_id(WrKind::ControlSent, index), rdma::kSignaled);
  SLUICE_INVARIANT_DEBUG(begun, ring_index);
  return index;
}

Sender Session::on_control_sent(std::uint16_t index) noexcept {
  const Sender sender = control_.release(index);
  if (sender == kHostAuthentication) on_property_part_sent();
  return sender;
}

// --- Continued messages

bool Session::stage_parts(const ContinuedMessage& message, std::uint64_t& sent,
                          std::uint32_t& posted) noexcept {
  const std::size_t header_bytes = part_header_bytes(message.type);
  const std::size_t pieces = link_.context().transmit.stage.max_sge() - 1;
  for (;;) {
    const std::uint64_t left = message.payload_bytes - sent;
    SLUICE_INVARIANT_DEBUG(sent <= message.payload_bytes, buffer_bounds);
    const std::uint64_t at_hand = bytes_in_pieces(message.payload, sent, pieces);
    if (message.last_header_bytes + left <= link_.send_bytes() && at_hand >= left) return true;
    if (!may_send_now(message.sender)) return false;
    const auto control = begin_control(message.sender);
    if (!control) return false;

    // The last part has the chunks and is never empty.
    const std::uint64_t bytes =
        smaller_of<std::uint64_t>(
            smaller_of<std::uint64_t>(link_.send_bytes() - header_bytes, left - kPartUnit), at_hand) /
        kPartUnit * kPartUnit;
    const CreditWord credit = offer();
    const Prefix prefix{
        .xid = message.xid, .credit = credit, .flags = kMore | (message.response ? kResponse : 0u)};
    xdr::Writer writer(control_.buffer(*control));
    if (message.type == HeaderType::ConnProp)
      encode_connprop(writer, prefix);
    else
      encode_call(writer, prefix, message.type, {}, {});
    link_.context().transmit.stage.append(control_.piece(*control, header_bytes));
    const bool appended = link_.append_payload(message.payload, sent, bytes);
    SLUICE_INVARIANT_DEBUG(appended, buffer_bounds);
    set_sender(message.sender);
    count_send(credit);
    ++link_.counters().parts_sent;
    link_.count_sent(&Counters::inline_bytes_sent, header_bytes + bytes);
    sent += bytes;
    ++posted;
  }
}

// --- Grants and the greeting

/// Decides whether a grant that is due is sent now, in version 2. It waits for one iteration, because a
/// payload message may carry it, such as the calls that follow replies. A peer without credits gets it
/// immediately (V2-036).
bool Session::grant_goes_now() noexcept {
  const bool due =
      link_.is_open() && opening_ == Opening::Complete && flow_.grant_due(link_.receives_after(0));
  const bool goes = due && (grant_put_off_ || flow_.unused() <= 0);
  grant_put_off_ = due && !goes;
  if (grant_put_off_) link_.flush_again();
  return goes;
}

void Session::send_grant() noexcept {
  const auto control = begin_control({});
  if (!control) return;
  const CreditWord credit = offer();
  xdr::Writer writer(control_.buffer(*control));
  encode_grant(writer, credit);
  SLUICE_INVARIANT_DEBUG(writer.ok(), buffer_bounds);
  link_.context().transmit.stage.append(control_.piece(*control, writer.position()));
  count_send(credit);
  granted_ns_ = link_.context().now_ns();
  ++link_.counters().grants_sent;
}

/// An illegal transition is still made because the code that follows relies on the new state.
void Session::transition(Opening to) noexcept {
  const bool legal = SLUICE_INVARIANT(may_follow(opening_, to), connection_state);
  opening_ = to;
  hold_back();
  if (!legal) link_.close(CloseReason::InternalError);
}

void Session::send_greeting() noexcept {
  static_cast<void>(SLUICE_INVARIANT(opening_ == Opening::AwaitingProperties, connection_state));
  if (!may_send_now(kGreeting)) return;
  const auto control = begin_control(kGreeting);
  if (!control) return;
  const CreditWord credit = offer();
  xdr::Writer writer(control_.buffer(*control));
  encode_connprop(writer, {.xid = static_cast<rpc::Xid>(++property_xid_), .credit = credit});
  if (link_.config().version2.announce)
    encode_parameters(writer, own_parameters());
  else
    writer.u32(0);
  link_.context().transmit.stage.append(control_.piece(*control, writer.position()));
  transition(Opening::Complete);
  count_send(credit);
  ++link_.counters().properties_sent;
}

/// Called when a call has been sent as the greeting.
void Session::on_greeted() noexcept {
  static_cast<void>(SLUICE_INVARIANT(opening_ == Opening::AwaitingCall, connection_state));
  transition(link_.config().version2.announce ? Opening::AwaitingProperties : Opening::Complete);
  link_.wait_for_notice();
}

// --- Properties

Parameters Session::own_parameters() const noexcept {
  const ConnectionConfig& config = link_.config();
  if (!config.version2.announce) return {};
  Parameters own = config.version2.parameters;
  own.max_send_bytes = smaller_of(own.max_send_bytes, link_.context().max_send_bytes);
  own.receive_buffer_bytes = config.receive_inline_bytes;
  if (config.active && config.credit_grant == 0) own.reverse = ReverseSupport::None;
  return own;
}

void Session::apply(const Agreement& agreement) noexcept {
  agreement_ = agreement;
  agreement_.send_bytes = bounded(agreement.send_bytes, kLeastThreshold,
                                  larger_of(kLeastThreshold, own_parameters().max_send_bytes));
  agreement_.max_segment_bytes = larger_of(agreement.max_segment_bytes, kLeastSegmentBytes);
  static_cast<void>(SLUICE_INVARIANT(agreement_.send_bytes >= kLeastThreshold, buffer_bounds));
  on_version();
}

bool Session::take_properties(std::span<const std::byte> body, const Header& header,
                              Refusal& refusal) noexcept {
  Counters& counters = link_.counters();
  const auto properties = header.response() ? std::nullopt : decode_properties(body);
  if (!properties) {
    ++counters.bad_properties;
    refusal = kRefuseXdr;
    return true;
  }
  if (heard_properties_ && !properties->host_authentication) {
    ++counters.late_properties;
    return true;
  }
  if (!owner_.on_properties(body, !heard_properties_)) return false;
  // The agreement is applied immediately because the next message may be a call whose reply must fit the
  // peer's Receives (V2-047).
  if (!heard_properties_) apply(agree(own_parameters(), *properties, &counters.clamped_properties));
  ++counters.properties_received;
  if (!heard_properties_) peer_parameters_ = *properties;
  heard_properties_ = true;
  return true;
}

bool Session::send_host_authentication(std::span<const std::byte> octets) noexcept {
  SharedMemory& memory = link_.context().assembly;
  const std::size_t bytes = 3 * xdr::kUnit + xdr::kUnit + xdr::padded(octets.size());
  if (!link_.is_open() || !link_.rules().has_properties || outgoing_ != nullptr ||
      bytes > smaller_of<std::size_t>(kMaxPropertyBytes, memory.most_bytes()))
    return false;
  outgoing_ = memory.acquire(assembly_account_, bytes);
  if (outgoing_ == nullptr) return false;
  xdr::Writer writer({outgoing_, bytes});
  encode_host_authentication(writer, octets);
  static_cast<void>(SLUICE_INVARIANT(writer.ok(), buffer_bounds));
  outgoing_bytes_ = static_cast<std::uint32_t>(writer.position());
  outgoing_sent_ = 0;
  ++property_xid_;
  send_outgoing();
  return true;
}

void Session::send_outgoing() noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(outgoing_ != nullptr && outgoing_sent_ <= outgoing_bytes_, buffer_bounds));
  if (outgoing_sent_ == outgoing_bytes_)
    return;  // all parts are sent; the buffer waits for their completions
  const rdma::Sge body{outgoing_, outgoing_bytes_, link_.context().assembly.lkey()};
  const auto xid = static_cast<rpc::Xid>(property_xid_);
  if (!stage_parts({.sender = kHostAuthentication,
                    .xid = xid,
                    .type = HeaderType::ConnProp,
                    .payload = {&body, 1},
                    .payload_bytes = outgoing_bytes_,
                    .last_header_bytes = kPrefixBytes},
                   outgoing_sent_, outgoing_posted_) ||
      !may_send_now(kHostAuthentication))
    return;
  const auto control = begin_control(kHostAuthentication);
  if (!control) return;
  const CreditWord credit = offer();
  xdr::Writer writer(control_.buffer(*control));
  encode_connprop(writer, {.xid = xid, .credit = credit});
  link_.context().transmit.stage.append(control_.piece(*control, writer.position()));
  link_.append_payload({&body, 1}, outgoing_sent_);
  outgoing_sent_ = outgoing_bytes_;
  ++outgoing_posted_;
  count_send(credit);
  ++link_.counters().properties_sent;
  end_continued_message();
}

/// Handles the completion of a Send of host authentication, including a flushed one.
void Session::on_property_part_sent() noexcept {
  if (!SLUICE_INVARIANT(outgoing_posted_ > 0, pool_balance)) return link_.close(CloseReason::InternalError);
  if (--outgoing_posted_ == 0 && (outgoing_sent_ == outgoing_bytes_ || !link_.is_open()))
    link_.context().assembly.release(std::exchange(outgoing_, nullptr));
}

}  // namespace sluice::rpcrdma::v2
