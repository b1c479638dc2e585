// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <stdexcept>

namespace sluice::ctl {
namespace {

/// What a pipe or FIFO that is writable takes without blocking.
constexpr std::size_t kPipeBytes = PIPE_BUF;
constexpr std::size_t kFileBytes = 1u << 20;

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (is_standard_output()) {
    fd_ = STDOUT_FILENO;
    if (::isatty(fd_) != 0)
      throw std::runtime_error(
          "Standard output is a terminal: name a file, or pass it on ('| tshark -r -').");
  } else {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    created_ = fd_ >= 0;
    struct stat status {};
    if (fd_ < 0 && errno == EEXIST && ::stat(path.c_str(), &status) == 0) {
      if (S_ISREG(status.st_mode))
        throw std::runtime_error(path + " is there already: name a file that does not exist.");
      fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    }
  }
  struct stat status {};
  if (fd_ < 0 || ::fstat(fd_, &status) != 0)
    throw std::runtime_error("Cannot create " + path + " (" + std::strerror(errno) +
                             "): name a file that does not exist, in a folder that you may write to.");
  regular_ = S_ISREG(status.st_mode);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0 && !is_standard_output()) ::close(fd_);
}

std::size_t OutputFile::write(std::span<const char> bytes, int timeout_ms) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    pollfd ready{fd_, POLLOUT, 0};
    if (!regular_ && ::poll(&ready, 1, timeout_ms) <= 0) break;
    const std::size_t most = regular_ ? kFileBytes : kPipeBytes;
    const ssize_t taken = ::write(fd_, bytes.data() + written, std::min(most, bytes.size() - written));
    if (taken < 0 && (errno == EINTR || errno == EAGAIN)) break;
    if (taken <= 0)
      throw std::runtime_error("Cannot write to " + path_ + " (" + std::strerror(errno) +
                               "): what is there is not all of it.");
    written += static_cast<std::size_t>(taken);
  }
  return written;
}

void OutputFile::close() {
  if (is_standard_output()) return;
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0)
    throw std::runtime_error("Cannot write to " + path_ + " (" + std::strerror(errno) +
                             "): what is there is not all of it.");
}

void OutputFile::discard() {
  if (created_) ::unlink(path_.c_str());
}

}  // namespace sluice::ctl
