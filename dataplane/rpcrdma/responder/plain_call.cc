// SPDX-License-Identifier: Apache-2.0
//
// The calls that most are: without chunks, and served within the turn in which they come. One function takes such a call
// from its Receive to its Send, by the steps of advance().
#include "dataplane/rpcrdma/responder/steps.h"

namespace sluice::rpcrdma {

using State = CallSlot::State;

namespace {

template <std::uint32_t kVersion>
constexpr std::size_t kPlainHeaderBytes =
    kVersion == v2::kVersion ? v2::kMinMsgHeaderBytes : kMinMsgHeaderBytes;

}  // namespace

template <std::uint32_t kVersion>
[[gnu::noinline]] void Responder::on_plain_call(std::uint16_t buffer,
                                                std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t header_bytes = kPlainHeaderBytes<kVersion>;
  if (free_.empty() || !pending_.empty() || holds_calls_ || traced_) [[unlikely]]
    return begin_plain_call<kVersion>(buffer, bytes);
  CallSlot& slot = take_slot();
  slot.message_.begin_plain(buffer, bytes, kVersion, header_bytes);
  start(slot);
  const auto payload = bytes.subspan(header_bytes);
  xdr::Reader reader(payload);
  if (!find_service(slot, reader, [this, &slot] { return reserve_headroom(slot, header_bytes); }))
      [[unlikely]]
    return advance(slot);
  slot.message_span() = payload;
  slot.arguments_ = reader.rest();
  slot.with_service_ = true;
  step<State::Received, State::Executing>(slot);
  execute(slot);
  if (!slot.completed_ || slot.state_ != State::Executing) [[unlikely]]
    return advance(slot);
  if (!slot.plain_ || !link_.is_open()) [[unlikely]]
    return advance(slot);
  finish_payload(slot);
  if (!stage_plain_reply(slot, kVersion == v2::kVersion)) [[unlikely]]
    return advance(slot);
  step<State::Executing, State::Pushing, State::Replying>(slot);
  end_advance(slot);
}

template <std::uint32_t kVersion>
[[gnu::cold, gnu::noinline]] void Responder::begin_plain_call(std::uint16_t buffer,
                                                              std::span<const std::byte> bytes) noexcept {
  ReceivedMessage& message = next_message();
  message.begin_plain(buffer, bytes, kVersion, kPlainHeaderBytes<kVersion>);
  on_call(message, kNoRefusal);
}

template void Responder::on_plain_call<v1::kVersion>(std::uint16_t, std::span<const std::byte>) noexcept;
template void Responder::on_plain_call<v2::kVersion>(std::uint16_t, std::span<const std::byte>) noexcept;

}  // namespace sluice::rpcrdma
