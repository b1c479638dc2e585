// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/log/log.h"

namespace sluice::config {
namespace {

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = ::write(fd, text.data(), text.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(bytes));
  }
  return true;
}

bool write_new(const std::string& path, const std::string& text, mode_t mode) {
  // One that a process left which was killed; its name may by now lead elsewhere.
  ::unlink(path.c_str());
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  return file && ::fchmod(file.get(), mode) == 0 && write_all(file.get(), text) && ::fsync(file.get()) == 0;
}

}  // namespace

void replace_file(const std::string& path, const std::string& text, mode_t mode) {
  const std::string fresh = path + ".new";
  const std::string folder = std::filesystem::path(path).parent_path();
  const FileDescriptor in(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (in && write_new(fresh, text, mode) && ::rename(fresh.c_str(), path.c_str()) == 0) {
    // It is replaced: to report a failure now would be to say that the old text is there.
    if (::fsync(in.get()) != 0)
      log::warn("{} is written, but its folder may not be on the disk ({}): look at the disk, and save again",
                path, std::strerror(errno));
    return;
  }
  const int error = errno;
  if (in) ::unlink(fresh.c_str());
  throw std::runtime_error("Cannot write " + path + " (" + std::strerror(error) +
                           "): let the control plane's user write to " + folder +
                           ", where there has to be room.");
}

}  // namespace sluice::config
