// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/capture_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice::process {

CaptureOutput::CaptureOutput(FileDescriptor pipe) : pipe_(std::move(pipe)) {
  struct stat status {};
  const int flags = pipe_ ? ::fcntl(pipe_.get(), F_GETFL) : -1;
  if (flags < 0 || ::fstat(pipe_.get(), &status) != 0 || !S_ISFIFO(status.st_mode) ||
      (flags & O_ACCMODE) == O_RDONLY)
    throw SetupError("A capture is written to a pipe only: pass its writing end with the request.");
  if (::fcntl(pipe_.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    throw SetupError(std::string("The capture's pipe cannot be made non-blocking (") + std::strerror(errno) +
                     "): try again.");
}

CaptureOutput::Outcome CaptureOutput::flush() {
  // Also where nothing is to be written: who asked for a capture may have gone before its first packet.
  pollfd reader{pipe_.get(), 0, 0};
  if (::poll(&reader, 1, 0) > 0 && (reader.revents & POLLERR) != 0) return Outcome::Gone;
  const std::size_t before = total_;
  while (written_ < pending_.size()) {
    const ssize_t bytes = ::write(pipe_.get(), pending_.data() + written_, pending_.size() - written_);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) break;
    if (bytes <= 0) return Outcome::Gone;
    written_ += static_cast<std::size_t>(bytes);
    total_ += static_cast<std::size_t>(bytes);
  }
  if (drained() || written_ >= kMaxPendingBytes) {
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(written_));
    written_ = 0;
  }
  return total_ > before || pending_.empty() ? Outcome::Progress : Outcome::Blocked;
}

}  // namespace sluice::process
