// SPDX-License-Identifier: Apache-2.0
//
// Keys of hosts: the key schedule, and the key files.
#include "controlplane/properties/key_schedule.h"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace sluice::properties {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kLabelPrefix = "slp2 ";

OSSL_PARAM octets(const char* name, Bytes value) {
  // OpenSSL only reads the memory that an input parameter points to.
  return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(value.data()), value.size());
}

void hkdf(int mode, Bytes key, const char* other_name, Bytes other, std::span<std::byte> out) {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr),
                                                              EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(
      kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr, EVP_KDF_CTX_free);
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
                                   OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                                   octets(OSSL_KDF_PARAM_KEY, key), octets(other_name, other),
                                   OSSL_PARAM_construct_end()};
  if (!context || EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(out.data()), out.size(),
                                 parameters) != 1)
    throw std::runtime_error("OpenSSL cannot compute HKDF with SHA-256.");
}

Secret extract(Bytes salt, Bytes input) {
  Secret result;
  hkdf(EVP_KDF_HKDF_MODE_EXTRACT_ONLY, input, OSSL_KDF_PARAM_SALT, salt, result.bytes);
  return result;
}

/// HKDF-Expand-Label. `out` and `context` have at most 255 bytes each.
void expand_label(const Secret& secret, std::string_view label, Bytes context, std::span<std::byte> out) {
  std::string info{'\0', static_cast<char>(out.size()),
                   static_cast<char>(kLabelPrefix.size() + label.size())};
  info.append(kLabelPrefix).append(label).push_back(static_cast<char>(context.size()));
  info.append(reinterpret_cast<const char*>(context.data()), context.size());
  hkdf(EVP_KDF_HKDF_MODE_EXPAND_ONLY, secret.bytes, OSSL_KDF_PARAM_INFO, std::as_bytes(std::span(info)), out);
}

Secret expand_label(const Secret& secret, std::string_view label, Bytes context) {
  Secret result;
  expand_label(secret, label, context, result.bytes);
  return result;
}

}  // namespace

Secret::~Secret() {
  OPENSSL_cleanse(bytes.data(), bytes.size());
}

Secret early_secret(Bytes key) {
  return extract(Hash{}, key);
}

KeyId key_id(const Secret& early) {
  KeyId id;
  expand_label(early, "key id", {}, id);
  return id;
}

/// Computes the handshake secret. The input is all zeros because there is no Diffie-Hellman exchange, as in
/// TLS.
Secret handshake_secret(const Secret& early) {
  return extract(expand_label(early, "derived", hash({})).bytes, Hash{});
}

Secret finished_key(const Secret& handshake, Role role, const Hash& hellos) {
  return expand_label(expand_label(handshake, role == Role::Client ? "c hs" : "s hs", hellos), "finished",
                      {});
}

Hash finished(const Secret& finished_key, const Hash& transcript) {
  Hash result;
  unsigned length = kHashBytes;
  if (HMAC(EVP_sha256(), finished_key.bytes.data(), kHashBytes,
           reinterpret_cast<const unsigned char*>(transcript.data()), transcript.size(),
           reinterpret_cast<unsigned char*>(result.data()), &length) == nullptr)
    throw std::runtime_error("OpenSSL cannot compute HMAC with SHA-256.");
  return result;
}

Hash hash(Bytes text) {
  Hash result;
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(result.data()), nullptr,
                 EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("OpenSSL cannot compute SHA-256.");
  return result;
}

bool same(const Hash& one, const Hash& other) {
  return CRYPTO_memcmp(one.data(), other.data(), kHashBytes) == 0;
}

PskKey psk_key(Bytes key) {
  const Secret early = early_secret(key);
  return {.id = key_id(early), .handshake = handshake_secret(early)};
}

namespace {

constexpr std::size_t kMaxLineEnd = 2;

struct File {
  explicit File(const std::string& path) : number(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (number >= 0) ::close(number);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int number;
};

struct Content {
  ~Content() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
  std::array<std::byte, kMaxKeyBytes + kMaxLineEnd + 1> bytes{};
  std::size_t size = 0;
};

void read_all(const File& file, const std::string& path, Content& content) {
  while (content.size < content.bytes.size()) {
    const ssize_t count =
        ::read(file.number, content.bytes.data() + content.size, content.bytes.size() - content.size);
    if (count == 0) return;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw std::runtime_error("Cannot read the key file " + path + ": " + std::strerror(errno) + ".");
    content.size += static_cast<std::size_t>(count);
  }
}

}  // namespace

PskKey read_key_file(const std::string& path) {
  const File file(path);
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0)
    throw std::runtime_error("Cannot read the key file " + path + ": " + std::strerror(errno) + ".");
  if ((status.st_mode & 077) != 0)
    throw std::runtime_error("The key file " + path + " can be read by others. Run chmod 600 on it.");
  Content content;
  read_all(file, path, content);
  std::span<const std::byte> key = std::span(content.bytes).first(content.size);
  while (!key.empty() && (key.back() == std::byte{'\n'} || key.back() == std::byte{'\r'}))
    key = key.first(key.size() - 1);
  if (key.size() < kMinKeyBytes || key.size() > kMaxKeyBytes)
    throw std::runtime_error("The key in " + path + " has to have between " + std::to_string(kMinKeyBytes) +
                             " and " + std::to_string(kMaxKeyBytes) + " bytes.");
  return psk_key(key);
}

}  // namespace sluice::properties
