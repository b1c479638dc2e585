// SPDX-License-Identifier: Apache-2.0
#include "controlplane/properties/key_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace sluice::properties {
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
    throw std::runtime_error("The key file " + path + " can be read by others: chmod 600 it.");
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
