// SPDX-License-Identifier: Apache-2.0
//
// Feeds host authentication with messages of an unauthenticated peer. The input is a byte that selects the
// side under test, then messages, each preceded by its length in two bytes, low byte first. Keys and nonces
// are those of the vectors in deploy/docs/host-authentication.md, so that seeds reach the end of a handshake.
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "controlplane/properties/psk.h"

namespace {

using namespace sluice::properties;

template <std::size_t N>
std::array<std::byte, N> counted(int first) {
  std::array<std::byte, N> result;
  for (std::size_t i = 0; i < N; ++i) result[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return result;
}

void require(bool condition) {
  if (!condition) std::abort();
}

/// A decoded message encodes to exactly the bytes that it was decoded from.
void check_decoders(std::span<const std::byte> message) {
  const auto equal = [](std::span<const std::byte> one, std::span<const std::byte> other) {
    return std::equal(one.begin(), one.end(), other.begin(), other.end());
  };
  const auto hello = decode_client_hello(message);
  const auto answer = decode_server_message(message);
  const auto finished = decode_client_finished(message);
  require(hello.has_value() + answer.has_value() + finished.has_value() <= 1);
  if (hello) require(equal(encode(*hello), message));
  if (answer) {
    auto encoded = encode(answer->hello);
    encoded.insert(encoded.end(), answer->finished.begin(), answer->finished.end());
    require(equal(encoded, message));
  }
  if (finished) require(equal(encode_client_finished(*finished), message));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const PskKey key = psk_key(counted<32>(0));
  static const PskKey other = psk_key(counted<32>(0x80));
  static const auto hosts =
      std::make_shared<const PskHosts>(PskHosts{{"client.example", {key}}, {"other.example", {other}}});
  if (size == 0) return 0;
  PskClient client("client.example", {other, key}, [] { return counted<kNonceBytes>(0x20); });
  PskServer server("gateway.example", hosts, [] { return counted<kNonceBytes>(0x40); });
  const bool is_client = (data[0] & 1) != 0;
  HostHandshake& side = is_client ? static_cast<HostHandshake&>(client) : server;
  side.begin();
  auto left = std::as_bytes(std::span(data, size)).subspan(1);
  bool ended = false;
  while (left.size() >= 2) {
    const std::size_t said = std::to_integer<std::size_t>(left[0]) | std::to_integer<std::size_t>(left[1])
                                                                         << 8;
    left = left.subspan(2);
    const auto message = left.first(std::min(said, left.size()));
    left = left.subspan(message.size());
    check_decoders(message);
    const HostHandshake::Step step = side.on_octets(message);
    require(!ended || step.verdict == HostHandshake::Verdict::Refused);
    ended = ended || step.verdict != HostHandshake::Verdict::Pending;
    if (step.verdict == HostHandshake::Verdict::Refused) require(step.answer.empty() && step.peer.empty());
    if (step.verdict == HostHandshake::Verdict::Accepted && !is_client)
      require(step.peer == "client.example" || step.peer == "other.example");
  }
  return 0;
}
