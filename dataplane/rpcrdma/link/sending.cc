// SPDX-License-Identifier: Apache-2.0
//
// Version 2: send order, continued messages, grants and the greeting (draft, sections 4.2, 4.3 and 6.3).

#include "dataplane/base/invariant.h"
#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/link/version_rules.h"

#include "dataplane/base/small_algorithms.h"

namespace sluice::rpcrdma {

using v2::HeaderType;

namespace {

/// Parts end on XDR units, so that a receiver may join them word by word (D2-30).
constexpr std::uint64_t kPartUnit = xdr::kUnit;

std::size_t part_header_bytes(HeaderType type) noexcept {
  return type == HeaderType::ConnProp ? v2::kPrefixBytes : v2::kMinMsgHeaderBytes;
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

bool append_pieces(SendStage& stage, std::span<const rdma::Sge> payload, std::uint64_t from,
                   std::uint64_t bytes) noexcept {
  for (rdma::Sge piece : payload) {
    if (bytes == 0) break;
    if (from >= piece.length) {
      from -= piece.length;
      continue;
    }
    piece.address += from;
    piece.length = static_cast<std::uint32_t>(smaller_of<std::uint64_t>(piece.length - from, bytes));
    from = 0;
    bytes -= piece.length;
    if (!stage.append(piece)) return false;
  }
  return true;
}

}  // namespace

// --- Send order

/// Slow path of may_send_now(): a continued message is in progress, the last credit is requested, or the
/// opening is not complete.
bool Link::may_send_out_of_turn(Sender sender) noexcept {
  const bool opens = opening_ == Opening::Complete ||
                     (opening_ == Opening::AwaitingProperties && sender.kind == Sender::Kind::Properties) ||
                     (opening_ == Opening::AwaitingCall && sender.kind == Sender::Kind::Call);
  const bool turn = sender_.kind == Sender::Kind::None || sender_ == sender;
  // A call of the reverse direction leaves the last credit to replies (D2-17). A client with a window of two
  // keeps one credit open without granting another, so a single call may use it while no reply is due.
  const bool yields = sender.kind == Sender::Kind::Call && !config_.active &&
                      sender_.kind == Sender::Kind::None &&
                      !(flow_.peer_limit() <= v2::FlowControl::kMinWindow && owner_.no_calls_in_progress());
  if (opens && turn && flow_.balance() >= (yields ? 2 : 1)) return true;
  ++counters().waits_credit;
  wait_for_notice();
  return false;
}

std::optional<std::uint16_t> Link::begin_control(Sender sender) noexcept {
  if (!control_.any_free()) {
    ++counters().waits_send_queue;
    wait_for_notice();
    return std::nullopt;
  }
  SendStage& stage = this->stage();
  if (!stage_fits(1) || stage.mark().sges() + stage.max_sge() > SendStage::kMaxSges) {
    flush_stage();
    if (!stage_fits(1)) {
      wait_for_send_room();
      return std::nullopt;
    }
  }
  const std::uint16_t index = control_.acquire(sender);
  const bool begun = stage.begin(rdma::SendOpcode::Send, wr_id(WrKind::ControlSent, index), rdma::kSignaled);
  SLUICE_INVARIANT_DEBUG(begun, ring_index);
  return index;
}

Sender Link::on_control_sent(std::uint16_t index) noexcept {
  return control_.release(index);
}

// --- Continued messages

bool Link::stage_parts(const ContinuedMessage& message, std::uint64_t& sent, std::uint32_t& posted) noexcept {
  const std::size_t header_bytes = part_header_bytes(message.type);
  const std::size_t pieces = context_.transmit.stage.max_sge() - 1;
  for (;;) {
    const std::uint64_t left = message.payload_bytes - sent;
    SLUICE_INVARIANT_DEBUG(sent <= message.payload_bytes, buffer_bounds);
    const std::uint64_t at_hand = bytes_in_pieces(message.payload, sent, pieces);
    if (message.last_header_bytes + left <= send_bytes() && at_hand >= left) return true;
    if (!may_send_now(message.sender)) return false;
    const auto control = begin_control(message.sender);
    if (!control) return false;

    // The last part has the chunks and is never empty.
    const std::uint64_t bytes =
        smaller_of<std::uint64_t>(smaller_of<std::uint64_t>(send_bytes() - header_bytes, left - kPartUnit),
                                  at_hand) /
        kPartUnit * kPartUnit;
    const v2::CreditWord credit = offer();
    const v2::Prefix prefix{
        .xid = message.xid, .credit = credit, .flags = v2::kMore | (message.response ? v2::kResponse : 0u)};
    xdr::Writer writer(control_buffer(*control));
    if (message.type == HeaderType::ConnProp)
      v2::encode_connprop(writer, prefix);
    else
      v2::encode_call(writer, prefix, message.type, {}, {});
    SendStage& stage = context_.transmit.stage;
    stage.append(control_piece(*control, header_bytes));
    const bool appended = append_pieces(stage, message.payload, sent, bytes);
    SLUICE_INVARIANT_DEBUG(appended, buffer_bounds);
    set_sender(message.sender);
    count_send(credit);
    ++counters().parts_sent;
    count_sent(&Counters::inline_bytes_sent, header_bytes + bytes);
    sent += bytes;
    ++posted;
  }
}

bool Link::append_payload(std::span<const rdma::Sge> payload, std::uint64_t from) noexcept {
  return append_pieces(context_.transmit.stage, payload, from, ~std::uint64_t{0});
}

// --- Grants and the greeting

/// Decides whether a grant that is due is sent now, in version 2. It waits for one iteration, because a
/// payload message may carry it, such as the calls that follow replies. A peer without credits gets it
/// immediately (V2-036).
bool Link::grant_goes_now() noexcept {
  const bool due = is_open() && opening_ == Opening::Complete && flow_.grant_due(receives_.posted());
  const bool goes = due && (grant_put_off_ || flow_.unused() <= 0);
  grant_put_off_ = due && !goes;
  return goes;
}

void Link::send_grant() noexcept {
  const auto control = begin_control({});
  if (!control) return;
  const v2::CreditWord credit = offer();
  xdr::Writer writer(control_buffer(*control));
  v2::encode_grant(writer, credit);
  SLUICE_INVARIANT_DEBUG(writer.ok(), buffer_bounds);
  context_.transmit.stage.append(control_piece(*control, writer.position()));
  count_send(credit);
  last_post_ns_ = context_.now_ns();  // nothing else sets it before the grant is posted
  ++counters().grants_sent;
}

void Link::send_greeting() noexcept {
  static_cast<void>(SLUICE_INVARIANT(opening_ == Opening::AwaitingProperties, connection_state));
  const Sender sender{Sender::Kind::Properties, 0};
  if (!may_send_now(sender)) return;
  const auto control = begin_control(sender);
  if (!control) return;
  const v2::CreditWord credit = offer();
  xdr::Writer writer(control_buffer(*control));
  v2::encode_connprop(writer, {.xid = next_property_xid(), .credit = credit});
  if (config_.version2.announce)
    v2::encode_parameters(writer, own_parameters());
  else
    writer.u32(0);
  context_.transmit.stage.append(control_piece(*control, writer.position()));
  transition(Opening::Complete);
  count_send(credit);
  ++counters().properties_sent;
}

void Link::on_greeted() noexcept {
  static_cast<void>(SLUICE_INVARIANT(opening_ == Opening::AwaitingCall, connection_state));
  transition(config_.version2.announce ? Opening::AwaitingProperties : Opening::Complete);
  wait_for_notice();
}

}  // namespace sluice::rpcrdma
