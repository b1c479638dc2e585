// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/properties.h"

#include <utility>

#include "dataplane/base/small_algorithms.h"

namespace sluice::rpcrdma {

namespace {

/// The greeting is number 0.
constexpr Sender kHostAuthentication{Sender::Kind::Properties, 1};

}  // namespace

void Properties::open() noexcept {
  heard_ = false;
  peer_ = {};
  posted_ = 0;
}

void Properties::on_closed() noexcept {
  // Else the driver has the buffer until its Sends are flushed.
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
  // At once: a call may come right behind it, whose reply has to fit the peer's Receives (V2-047).
  if (!heard_) link_.apply(v2::agree(link_.own_parameters(), *properties, &counters.clamped_properties));
  ++counters.properties_received;
  if (!heard_) peer_ = *properties;
  heard_ = true;
  return true;
}

bool Properties::send_host_authentication(std::span<const std::byte> octets) noexcept {
  SharedMemory& memory = link_.context().assembly;
  const std::size_t bytes = 3 * xdr::kUnit + xdr::kUnit + xdr::padded(octets.size());
  if (!link_.is_open() || !link_.speaks_version_2() || outgoing_ != nullptr ||
      bytes > smaller_of<std::size_t>(kMaxPropertyBytes, memory.most_bytes()))
    return false;
  outgoing_ = memory.acquire(link_.assembly_account(), bytes);
  if (outgoing_ == nullptr) return false;
  xdr::Writer writer({outgoing_, bytes});
  v2::encode_host_authentication(writer, octets);
  outgoing_bytes_ = static_cast<std::uint32_t>(writer.position());
  sent_bytes_ = 0;
  link_.next_property_xid();
  send();
  return true;
}

void Properties::send() noexcept {
  if (sent_bytes_ == outgoing_bytes_) return;  // waits for its completions
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

void Properties::on_part_sent() noexcept {
  // A greeting has no memory here.
  if (posted_ > 0 && --posted_ == 0 && (sent_bytes_ == outgoing_bytes_ || !link_.is_open()))
    link_.context().assembly.release(std::exchange(outgoing_, nullptr));
}

}  // namespace sluice::rpcrdma
