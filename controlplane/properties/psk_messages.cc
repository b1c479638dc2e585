// SPDX-License-Identifier: Apache-2.0
#include "controlplane/properties/psk_messages.h"

#include <algorithm>

namespace sluice::properties {
namespace {

constexpr std::array<std::byte, 4> kMagic{std::byte{'S'}, std::byte{'L'}, std::byte{'P'}, std::byte{'2'}};
constexpr std::byte kClientHello{1};
constexpr std::byte kServerMessage{2};
constexpr std::byte kClientFinished{3};

// Byte by byte: gcc 14 sees an overflow in inserting a range that there is not.
void append(std::vector<std::byte>& to, std::span<const std::byte> more) {
  for (const std::byte byte : more) to.push_back(byte);
}

std::vector<std::byte> start(std::byte number) {
  std::vector<std::byte> message(kMagic.begin(), kMagic.end());
  message.push_back(number);
  return message;
}

std::vector<std::byte> start(std::byte number, const std::string& name, const Nonce& nonce) {
  std::vector<std::byte> message = start(number);
  message.push_back(static_cast<std::byte>(name.size()));
  append(message, std::as_bytes(std::span(name)));
  append(message, nonce);
  return message;
}

/// Reads from the front of a message. After the first read beyond its end all further ones give zeros.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> message) : left_(message) {}

  std::span<const std::byte> bytes(std::size_t count) {
    good_ = good_ && count <= left_.size();
    if (!good_) return {};
    const auto result = left_.first(count);
    left_ = left_.subspan(count);
    return result;
  }
  template <std::size_t N>
  std::array<std::byte, N> array() {
    std::array<std::byte, N> result{};
    const auto from = bytes(N);
    std::copy(from.begin(), from.end(), result.begin());
    return result;
  }
  std::uint8_t number() { return std::to_integer<std::uint8_t>(array<1>()[0]); }
  void expect(bool condition) { good_ = good_ && condition; }
  void expect_start(std::byte number) {
    expect(array<kMagic.size()>() == kMagic);
    expect(array<1>()[0] == number);
  }
  std::string name() {
    const auto text = bytes(number());
    std::string result(reinterpret_cast<const char*>(text.data()), text.size());
    expect(valid_name(result));
    return result;
  }
  bool good_to_the_end() const { return good_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool good_ = true;
};

}  // namespace

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxHostNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::vector<std::byte> encode(const ClientHello& hello) {
  std::vector<std::byte> message = start(kClientHello, hello.name, hello.nonce);
  message.push_back(static_cast<std::byte>(hello.keys.size()));
  for (const KeyId& id : hello.keys) append(message, id);
  return message;
}

std::vector<std::byte> encode(const ServerHello& hello) {
  std::vector<std::byte> message = start(kServerMessage, hello.name, hello.nonce);
  message.push_back(static_cast<std::byte>(hello.choice));
  return message;
}

std::vector<std::byte> encode_client_finished(const Hash& finished) {
  std::vector<std::byte> message = start(kClientFinished);
  append(message, finished);
  return message;
}

std::optional<ClientHello> decode_client_hello(std::span<const std::byte> message) {
  Reader reader(message);
  ClientHello hello;
  reader.expect_start(kClientHello);
  hello.name = reader.name();
  hello.nonce = reader.array<kNonceBytes>();
  const std::size_t count = reader.number();
  if (count == 0 || count > kMaxOfferedKeys) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) hello.keys.push_back(reader.array<std::tuple_size_v<KeyId>>());
  if (!reader.good_to_the_end()) return std::nullopt;
  return hello;
}

std::optional<ServerMessage> decode_server_message(std::span<const std::byte> message) {
  Reader reader(message);
  ServerMessage result;
  reader.expect_start(kServerMessage);
  result.hello.name = reader.name();
  result.hello.nonce = reader.array<kNonceBytes>();
  result.hello.choice = reader.number();
  reader.expect(result.hello.choice < kMaxOfferedKeys);
  result.finished = reader.array<kHashBytes>();
  if (!reader.good_to_the_end()) return std::nullopt;
  return result;
}

std::optional<Hash> decode_client_finished(std::span<const std::byte> message) {
  Reader reader(message);
  reader.expect_start(kClientFinished);
  const Hash finished = reader.array<kHashBytes>();
  if (!reader.good_to_the_end()) return std::nullopt;
  return finished;
}

}  // namespace sluice::properties
