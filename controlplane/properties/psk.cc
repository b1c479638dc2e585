// SPDX-License-Identifier: Apache-2.0
//
// Host authentication with pre-shared keys: the messages, and both roles.
#include "controlplane/properties/psk.h"

#include <openssl/rand.h>

#include <algorithm>
#include <stdexcept>

namespace sluice::properties {
namespace {

constexpr std::array<std::byte, 4> kMagic{std::byte{'S'}, std::byte{'L'}, std::byte{'P'}, std::byte{'2'}};
constexpr std::byte kClientHello{1};
constexpr std::byte kServerMessage{2};
constexpr std::byte kClientFinished{3};

// Appends byte by byte, because gcc 14 reports a false overflow for inserting a range.
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

/// Reads from the front of a message. After a read beyond the end, all further reads return zeros.
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

namespace {

HostHandshake::Step refused() {
  return {.verdict = HostHandshake::Verdict::Refused, .answer = {}, .peer = {}};
}

/// Proofs of both roles, computed from the hellos and the key.
struct Proofs {
  Hash server{};
  Hash client{};
};

/// Computes the proofs. `transcript` contains message 1 and message 2 without its Finished.
Proofs proofs(const PskKey& key, std::vector<std::byte> transcript) {
  const Hash hellos = hash(transcript);
  Proofs result;
  result.server = finished(finished_key(key.handshake, Role::Server, hellos), hellos);
  append(transcript, result.server);
  result.client = finished(finished_key(key.handshake, Role::Client, hellos), hash(transcript));
  return result;
}

void check_name(const std::string& name) {
  if (!valid_name(name))
    throw std::runtime_error("The host name '" + name + "' has to have 1 to " +
                             std::to_string(kMaxHostNameBytes) + " printable characters without spaces.");
}

}  // namespace

Nonce random_nonce() {
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), kNonceBytes) != 1)
    throw std::runtime_error("OpenSSL has no random bytes for a nonce.");
  return nonce;
}

PskClient::PskClient(std::string name, std::vector<PskKey> keys, NonceSource nonces)
    : name_(std::move(name)), keys_(std::move(keys)), nonces_(nonces) {
  check_name(name_);
  if (keys_.empty() || keys_.size() > kMaxOfferedKeys)
    throw std::runtime_error("A host offers 1 to " + std::to_string(kMaxOfferedKeys) + " keys.");
}

std::vector<std::byte> PskClient::begin() {
  ClientHello hello{.name = name_, .nonce = nonces_(), .keys = {}};
  for (const PskKey& key : keys_) hello.keys.push_back(key.id);
  return hello_ = encode(hello);
}

HostHandshake::Step PskClient::on_octets(std::span<const std::byte> octets) {
  std::vector<std::byte> transcript = std::exchange(hello_, {});
  const auto message = decode_server_message(octets);
  if (transcript.empty() || !message || message->hello.choice >= keys_.size()) return refused();
  // Rejects the host's own name: a host that is also a server could otherwise accept its own replies as
  // another host's.
  if (message->hello.name == name_) return refused();
  append(transcript, octets.first(octets.size() - kHashBytes));
  const Proofs due = proofs(keys_[message->hello.choice], std::move(transcript));
  if (!same(due.server, message->finished)) return refused();
  return {.verdict = Verdict::Accepted,
          .answer = encode_client_finished(due.client),
          .peer = message->hello.name};
}

PskServer::PskServer(std::string name, std::shared_ptr<const PskHosts> hosts, NonceSource nonces)
    : name_(std::move(name)), hosts_(std::move(hosts)), nonces_(nonces) {}

HostHandshake::Step PskServer::on_octets(std::span<const std::byte> octets) {
  switch (std::exchange(due_, Due::Nothing)) {
    case Due::Hello:
      return on_hello(octets);
    case Due::Finished:
      return on_finished(octets);
    case Due::Nothing:
      break;
  }
  return refused();
}

HostHandshake::Step PskServer::on_hello(std::span<const std::byte> octets) {
  const auto hello = decode_client_hello(octets);
  if (!hello) return refused();
  const auto host = hosts_->find(hello->name);
  if (host == hosts_->end()) return refused();
  for (std::size_t i = 0; i < hello->keys.size(); ++i) {
    const auto key = std::find_if(host->second.begin(), host->second.end(),
                                  [&](const PskKey& known) { return known.id == hello->keys[i]; });
    if (key == host->second.end()) continue;
    Step step{.answer = encode(
                  ServerHello{.name = name_, .nonce = nonces_(), .choice = static_cast<std::uint8_t>(i)}),
              .peer = {}};
    std::vector<std::byte> transcript(octets.begin(), octets.end());
    append(transcript, step.answer);
    const Proofs due = proofs(*key, std::move(transcript));
    append(step.answer, due.server);
    expected_ = due.client;
    peer_ = hello->name;
    due_ = Due::Finished;
    return step;
  }
  return refused();
}

HostHandshake::Step PskServer::on_finished(std::span<const std::byte> octets) {
  const auto given = decode_client_finished(octets);
  if (!given || !same(*given, expected_)) return refused();
  return {.verdict = Verdict::Accepted, .answer = {}, .peer = peer_};
}

PskAuthentication::PskAuthentication(std::string name, PskHosts hosts)
    : name_(std::move(name)), hosts_(std::make_shared<const PskHosts>(std::move(hosts))) {
  check_name(name_);
  std::map<KeyId, std::string> owners;
  for (const auto& [host, keys] : *hosts_) {
    check_name(host);
    if (host == name_)
      throw std::runtime_error("The host name '" + host + "' is the name of this host. Rename one of them.");
    for (const PskKey& key : keys) {
      const auto [owner, is_new] = owners.try_emplace(key.id, host);
      if (is_new) continue;
      throw std::runtime_error(
          owner->second == host
              ? "The host '" + host + "' has the same key twice."
              : "The hosts '" + owner->second + "' and '" + host +
                    "' share a key, so each could impersonate the other. Give each a separate key.");
    }
  }
}

}  // namespace sluice::properties
