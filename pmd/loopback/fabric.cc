// SPDX-License-Identifier: Apache-2.0
#include "pmd/loopback/fabric.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "dataplane/base/file_lock.h"
#include "dataplane/base/setup_error.h"

namespace sluice::rdma::loopback {
namespace {

constexpr std::uint64_t kMagic = 0x534c5549434c4201;  // "SLUICLB", 1
constexpr std::uint32_t kLayoutVersion = 2;
constexpr std::size_t kPage = 4096;

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}
constexpr std::size_t links_at() {
  return round_up(sizeof(FabricHeader));
}
constexpr std::size_t arenas_at(std::uint32_t links) {
  return links_at() + round_up(links * sizeof(Link));
}

std::size_t total_bytes(const FabricConfig& config, bool shared) {
  if (config.links == 0 || config.links > kMaxLinks)
    throw SetupError("A loopback fabric needs 1 to " + std::to_string(kMaxLinks) + " links.");
  return arenas_at(config.links) + (shared ? kMaxDevices * round_up(config.arena_bytes) : 0);
}

std::byte* map(int fd, std::size_t bytes) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED | MAP_NORESERVE;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED)
    throw SetupError("Cannot map " + std::to_string(bytes >> 20) + " MiB for the loopback fabric (" +
                     std::strerror(errno) + "): use fewer links or a smaller arena.");
  return static_cast<std::byte*>(memory);
}

/// Of the file's bytes, that which the creator has locked for its life.
constexpr std::uint64_t kCreatorLock = 0;

/// Owns a descriptor.
struct File {
  int fd;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  int release() { return std::exchange(fd, -1); }
};

void allocate_file(int fd, std::uint64_t first, std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = 1u << 20;
  const int error = ::posix_fallocate(fd, static_cast<off_t>(first), static_cast<off_t>(bytes));
  if (error != 0)
    throw SetupError(
        "Cannot allocate " + std::to_string((bytes + kMiB - 1) / kMiB) + " MiB for the loopback fabric (" +
        std::strerror(error) +
        "): make room in its file system, /dev/shm as a rule, which a container is given as its shm "
        "size.");
}

/// Removes what a creator that is gone has left.
void clear_place(const std::string& path) {
  const File left{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  struct stat status {};
  if (left.fd < 0 && errno == ENOENT) return;
  if (left.fd < 0 || ::fstat(left.fd, &status) != 0 || !S_ISREG(status.st_mode))
    throw SetupError("There is something at " + path +
                     " that is no loopback fabric: remove it, or set another loopback_path.");
  if (!file_lock::take(left.fd, kCreatorLock))
    throw SetupError("Another data plane serves the loopback fabric " + path +
                     ": stop it first, or set another loopback_path.");
  ::unlink(path.c_str());
}

}  // namespace

Fabric::Fabric(std::byte* memory, std::size_t bytes, int descriptor, std::string path)
    : memory_(memory), bytes_(bytes), descriptor_(descriptor), path_(std::move(path)) {}

Fabric::~Fabric() {
  if (!path_.empty()) {
    header_->creator_alive.store(0, std::memory_order_release);
    ::unlink(path_.c_str());
  }
  ::munmap(memory_, bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Fabric::allocate(const std::byte* memory, std::size_t bytes) {
  allocate_file(descriptor_, static_cast<std::uint64_t>(memory - memory_), bytes);
}

void Fabric::locate() noexcept {
  header_ = reinterpret_cast<FabricHeader*>(memory_);
  link_count_ = header_->links;
  arena_bytes_ = header_->arena_bytes;
  links_ = reinterpret_cast<Link*>(memory_ + links_at());
  arenas_ = memory_ + arenas_at(link_count_);
}

/// New pages are zero, which is the initial value of everything else.
void Fabric::initialise(const FabricConfig& config, bool shared) {
  auto* header = reinterpret_cast<FabricHeader*>(memory_);
  header->layout_version = kLayoutVersion;
  header->links = config.links;
  header->total_bytes = bytes_;
  header->arena_bytes = shared ? round_up(config.arena_bytes) : 0;
  header->creator_pid = static_cast<std::uint32_t>(::getpid());
  header->creator_alive.store(1, std::memory_order_release);
  header->magic = kMagic;
  locate();
}

std::shared_ptr<Fabric> Fabric::in_process(const FabricConfig& config) {
  const std::size_t bytes = total_bytes(config, false);
  std::shared_ptr<Fabric> fabric(new Fabric(map(-1, bytes), bytes, -1, ""));
  fabric->initialise(config, false);
  return fabric;
}

std::shared_ptr<Fabric> Fabric::create(const std::string& path, const FabricConfig& config) {
  const std::size_t bytes = total_bytes(config, true);
  clear_place(path);
  // Without a name until it is complete: nobody attaches to half a fabric.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  File file{::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  if (file.fd < 0 || ::ftruncate(file.fd, static_cast<off_t>(bytes)) != 0)
    throw SetupError("Cannot create the loopback fabric " + path + " (" + std::strerror(errno) +
                     "): its directory must exist, be writable and have space; /dev/shm is the usual place.");
  allocate_file(file.fd, 0, arenas_at(config.links));
  file_lock::take(file.fd, kCreatorLock);
  const std::string anonymous = "/proc/self/fd/" + std::to_string(file.fd);
  std::byte* const memory = map(file.fd, bytes);
  std::shared_ptr<Fabric> fabric(new Fabric(memory, bytes, file.release(), ""));
  fabric->initialise(config, true);
  if (::linkat(AT_FDCWD, anonymous.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0)
    throw SetupError("Cannot create the loopback fabric " + path + " (" + std::strerror(errno) +
                     "): another data plane may be starting; /proc has to be mounted.");
  fabric->path_ = path;
  return fabric;
}

std::shared_ptr<Fabric> Fabric::attach(const std::string& path) {
  File file{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  if (file.fd < 0)
    throw SetupError("Cannot open the loopback fabric " + path + " (" + std::strerror(errno) +
                     "): sluice-dataplane creates it when its configuration says driver = \"loopback\".");
  struct stat status {};
  FabricHeader* header = nullptr;
  if (::fstat(file.fd, &status) != 0 || static_cast<std::size_t>(status.st_size) < links_at())
    throw SetupError("The file " + path + " is not a loopback fabric: it is too short.");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  std::byte* const memory = map(file.fd, bytes);
  std::shared_ptr<Fabric> fabric(new Fabric(memory, bytes, file.release(), ""));
  header = reinterpret_cast<FabricHeader*>(fabric->memory_);
  if (header->magic != kMagic || header->layout_version != kLayoutVersion || header->total_bytes != bytes ||
      header->links == 0 || header->links > kMaxLinks ||
      arenas_at(header->links) + kMaxDevices * header->arena_bytes != bytes)
    throw SetupError("The file " + path +
                     " is not a loopback fabric of this version: restart sluice-dataplane, or use "
                     "programs of one release.");
  fabric->locate();
  return fabric;
}

}  // namespace sluice::rdma::loopback
