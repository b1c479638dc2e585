// SPDX-License-Identifier: Apache-2.0
//
// Reader of text files that a person wrote; the path may lead to anything. For setup; any thread.
#pragma once

#include <fcntl.h>
#include <iconv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace sluice {

/// Maximum size of a text file, far above that of any configuration.
inline constexpr std::size_t kMaxTextBytes = 1u << 20;

/// Returns the number of the first line that is not UTF-8; zero if all are.
inline std::size_t line_not_utf8(const std::string& text) {
  const iconv_t conversion = ::iconv_open("UTF-32LE", "UTF-8");
  if (conversion == reinterpret_cast<iconv_t>(-1)) return 0;
  char* from = const_cast<char*>(text.data());
  std::size_t left = text.size();
  bool bad = false;
  while (left > 0 && !bad) {
    char characters[4096];
    char* to = characters;
    std::size_t room = sizeof characters;
    bad = ::iconv(conversion, &from, &left, &to, &room) == static_cast<std::size_t>(-1) && errno != E2BIG;
  }
  ::iconv_close(conversion);
  if (!bad) return 0;
  std::size_t line = 1;
  for (const char* at = text.data(); at < from; ++at) line += *at == '\n' ? 1 : 0;
  return line;
}

/// Returns the text of an open file from its beginning. The caller keeps the descriptor, and its position
/// does not change. `path` is for error messages. Throws like read_text_file(path).
inline std::string read_text_file(int fd, const std::string& path) {
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0)
    throw std::runtime_error("Cannot read " + path + " (" + std::strerror(errno) + ").");
  if (S_ISDIR(status.st_mode))
    throw std::runtime_error(path +
                             " is a directory. Name the file in it. (A container creates a directory for a "
                             "mounted file that does not exist.)");
  if (!S_ISREG(status.st_mode))
    throw std::runtime_error(path + " is a pipe or a device. Name a regular file.");
  std::string text(kMaxTextBytes + 1, '\0');
  std::size_t size = 0;
  ssize_t bytes;
  while (size < text.size() &&
         (bytes = ::pread(fd, text.data() + size, text.size() - size, static_cast<off_t>(size))) != 0) {
    if (bytes > 0) size += static_cast<std::size_t>(bytes);
    if (bytes < 0 && errno != EINTR)
      throw std::runtime_error("Cannot read " + path + " (" + std::strerror(errno) + ").");
  }
  if (size > kMaxTextBytes)
    throw std::runtime_error(path + " has more than " + std::to_string(kMaxTextBytes >> 20) +
                             " MiB. Name a configuration file.");
  text.resize(size);
  if (const std::size_t line = line_not_utf8(text); line != 0)
    throw std::runtime_error(path + ':' + std::to_string(line) +
                             ": this line is not UTF-8 text. Save the file as UTF-8.");
  return text;
}

/// Returns the text of a file. Throws std::runtime_error with a sentence if the file does not exist, is a
/// directory, a pipe or a device, has more than kMaxTextBytes, or is not UTF-8.
inline std::string read_text_file(const std::string& path) {
  struct File {
    int fd;
    ~File() {
      if (fd >= 0) ::close(fd);
    }
  };
  // O_NONBLOCK: otherwise opening a pipe would wait for a writer.
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  return read_text_file(file.fd, path);
}

}  // namespace sluice
