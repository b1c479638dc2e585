// SPDX-License-Identifier: Apache-2.0
#include "controlplane/properties/psk.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace sluice::properties {
namespace {

constexpr std::array<std::byte, 4> kMagic{std::byte{'S'}, std::byte{'L'}, std::byte{'P'}, std::byte{'1'}};
constexpr std::byte kGreeting{1};
constexpr std::byte kChallenge{2};
constexpr std::byte kResponse{3};
constexpr std::byte kNoMore{0};

void append(std::vector<std::byte>& to, std::span<const std::byte> more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<std::byte> start(std::byte number) {
  std::vector<std::byte> message(kMagic.begin(), kMagic.end());
  message.push_back(number);
  return message;
}

/// Name with its length, and a fresh nonce.
std::vector<std::byte> introduction(const std::string& name) {
  std::vector<std::byte> text(1 + name.size() + kNonceBytes);
  text[0] = static_cast<std::byte>(name.size());
  std::memcpy(text.data() + 1, name.data(), name.size());
  std::byte* const nonce = text.data() + 1 + name.size();
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce), kNonceBytes) != 1)
    throw std::runtime_error("OpenSSL has no random bytes for a challenge.");
  return text;
}

/// Length of the introduction at the front, or zero when there is none.
std::size_t introduction_bytes(std::span<const std::byte> octets) {
  if (octets.empty()) return 0;
  const std::size_t name = static_cast<std::size_t>(octets[0]);
  const std::size_t bytes = 1 + name + kNonceBytes;
  return name <= kMaxNameBytes && bytes <= octets.size() ? bytes : 0;
}

std::string name_in(std::span<const std::byte> introduction) {
  const std::size_t bytes = static_cast<std::size_t>(introduction[0]);
  return {reinterpret_cast<const char*>(introduction.data() + 1), bytes};
}

}  // namespace

std::vector<std::byte> read_key_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    throw std::runtime_error("Cannot read the key file " + path + ": " + std::strerror(errno) + ".");
  if ((status.st_mode & 077) != 0)
    throw std::runtime_error("The key file " + path + " can be read by others: chmod 600 it.");
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.size() < kMinKeyBytes || text.size() > kMaxKeyBytes)
    throw std::runtime_error("The key in " + path + " has to have between " + std::to_string(kMinKeyBytes) +
                             " and " + std::to_string(kMaxKeyBytes) + " bytes.");
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

PskHandshake::PskHandshake(Role role, PskIdentity identity)
    : role_(role), identity_(std::move(identity)), next_(role == Role::Client ? kChallenge : kGreeting) {
  if (identity_.name.size() > kMaxNameBytes) identity_.name.resize(kMaxNameBytes);
}

PskHandshake::~PskHandshake() {
  OPENSSL_cleanse(identity_.key.data(), identity_.key.size());
}

std::array<std::byte, kProofBytes> PskHandshake::proof(std::byte number) const {
  std::vector<std::byte> text = start(number);
  append(text, transcript_);
  std::array<std::byte, kProofBytes> result{};
  unsigned length = result.size();
  if (HMAC(EVP_sha256(), identity_.key.data(), static_cast<int>(identity_.key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(result.data()), &length) == nullptr)
    throw std::runtime_error("OpenSSL cannot compute HMAC-SHA-256.");
  return result;
}

std::vector<std::byte> PskHandshake::begin() {
  if (role_ != Role::Client) return {};
  transcript_ = introduction(identity_.name);
  std::vector<std::byte> message = start(kGreeting);
  append(message, transcript_);
  return message;
}

HostHandshake::Step PskHandshake::on_octets(std::span<const std::byte> octets) {
  const std::size_t head = kMagic.size() + 1;
  const bool expected = next_ != kNoMore && octets.size() >= head &&
                        std::equal(kMagic.begin(), kMagic.end(), octets.begin()) &&
                        octets[kMagic.size()] == next_;
  if (!expected) {
    next_ = kNoMore;
    return {.verdict = Verdict::Refused, .answer = {}, .peer = {}};
  }
  const std::byte number = std::exchange(next_, kNoMore);
  const auto body = octets.subspan(head);
  if (number == kGreeting) return on_greeting(body);
  return number == kChallenge ? on_challenge(body) : on_response(body);
}

HostHandshake::Step PskHandshake::on_greeting(std::span<const std::byte> octets) {
  const std::size_t bytes = introduction_bytes(octets);
  if (bytes == 0 || bytes != octets.size()) return {.verdict = Verdict::Refused, .answer = {}, .peer = {}};
  peer_ = name_in(octets);
  transcript_.assign(octets.begin(), octets.end());
  const auto own = introduction(identity_.name);
  append(transcript_, own);
  Step step{.answer = start(kChallenge), .peer = {}};
  append(step.answer, own);
  append(step.answer, proof(kChallenge));
  next_ = kResponse;
  return step;
}

HostHandshake::Step PskHandshake::on_challenge(std::span<const std::byte> octets) {
  const std::size_t bytes = introduction_bytes(octets);
  if (bytes == 0 || bytes + kProofBytes != octets.size())
    return {.verdict = Verdict::Refused, .answer = {}, .peer = {}};
  append(transcript_, octets.first(bytes));
  const auto expected = proof(kChallenge);
  if (CRYPTO_memcmp(expected.data(), octets.data() + bytes, kProofBytes) != 0)
    return {.verdict = Verdict::Refused, .answer = {}, .peer = {}};
  Step step{.verdict = Verdict::Accepted, .answer = start(kResponse), .peer = name_in(octets)};
  append(step.answer, proof(kResponse));
  return step;
}

HostHandshake::Step PskHandshake::on_response(std::span<const std::byte> octets) {
  const auto expected = proof(kResponse);
  if (octets.size() != kProofBytes || CRYPTO_memcmp(expected.data(), octets.data(), kProofBytes) != 0)
    return {.verdict = Verdict::Refused, .answer = {}, .peer = {}};
  return {.verdict = Verdict::Accepted, .answer = {}, .peer = peer_};
}

}  // namespace sluice::properties
