// SPDX-License-Identifier: Apache-2.0
#include "pmd/loopback/fabric.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/loopback/device.h"

namespace sluice::rdma::loopback {
namespace {

constexpr std::uint64_t kMagic = 0x534c5549434c4201;  // "SLUICLB", 1
constexpr std::uint32_t kLayoutVersion = 4;
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
                     std::strerror(errno) + "). Use fewer links or a smaller arena.");
  return static_cast<std::byte*>(memory);
}

// Bytes of the file that are locked for life by the creator and by the process of each device.
constexpr std::uint64_t kCreatorLock = 0;
constexpr std::uint64_t kDeviceLocks = 1;

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
        "). Free space in its file system, usually /dev/shm, whose size in a container is the shm "
        "size.");
}

/// Removes the file of a creator that has ended.
void clear_place(const std::string& path) {
  const File left{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  struct stat status {};
  if (left.fd < 0 && errno == ENOENT) return;
  if (left.fd < 0 || ::fstat(left.fd, &status) != 0 || !S_ISREG(status.st_mode))
    throw SetupError("The file at " + path +
                     " is not a loopback fabric. Remove it, or set another loopback_path.");
  if (!file_lock::take(left.fd, kCreatorLock))
    throw SetupError("Another data plane serves the loopback fabric " + path +
                     ". Stop it first, or set another loopback_path.");
  ::unlink(path.c_str());
}

}  // namespace

Fabric::Fabric(std::byte* memory, std::size_t bytes, int descriptor, std::string path)
    : memory_(memory), bytes_(bytes), descriptor_(descriptor), path_(std::move(path)) {}

Fabric::~Fabric() {
  if (!path_.empty()) {
    header_->creator_alive.store(0, std::memory_order_relaxed);
    ::unlink(path_.c_str());
  }
  ::munmap(memory_, bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Fabric::allocate(const std::byte* memory, std::size_t bytes) {
  allocate_file(descriptor_, static_cast<std::uint64_t>(memory - memory_), bytes);
}

std::uint32_t Fabric::claim_device() {
  for (std::uint32_t number = 0; number < kMaxDevices; ++number) {
    DeviceEntry& entry = header_->devices[number];
    std::uint32_t unused = 0;
    if (!entry.in_use.compare_exchange_strong(unused, 1)) {
      if (!across_processes() || own_[number] || !take_over(number)) continue;
    } else if (across_processes() && !file_lock::take(descriptor_, kDeviceLocks + number)) {
      entry.in_use.store(0);  // the process that releases it holds the lock a moment longer
      continue;
    }
    static_cast<void>(SLUICE_INVARIANT(!own_[number].load(), table_index));
    own_[number].store(true);
    if (entry.claims.fetch_add(1) + 1 == 0) entry.claims.store(1);  // zero means no claim
    return number;
  }
  throw SetupError("All " + std::to_string(kMaxDevices) +
                   " devices of the loopback fabric are in use. Stop another client first.");
}

/// Takes over the number of a process that has ended. Fails while any link with that process exists; after
/// that its arena is unused.
bool Fabric::take_over(std::uint32_t number) noexcept {
  if (!file_lock::take(descriptor_, kDeviceLocks + number)) return false;
  for (std::uint32_t i = 0; i < link_count_; ++i) {
    const Link& link = links_[i];
    // Pairs with set_state(): the devices of the link. Pairs with drop_side(): the last use of the arena.
    const std::uint32_t state = link.state.load(std::memory_order_acquire);
    if (state != static_cast<std::uint32_t>(LinkState::Free) &&
        (state == claimed_by(number) || link.devices[kConnector].load() == number ||
         link.devices[kAcceptor].load() == number)) {
      file_lock::give_back(descriptor_, kDeviceLocks + number);
      return false;
    }
  }
  return true;
}

void Fabric::release_device(std::uint32_t number) noexcept {
  static_cast<void>(SLUICE_INVARIANT(number < kMaxDevices && own_[number].load(), table_index));
  own_[number].store(false);
  // Pairs with claim_device(): the arena is unused.
  header_->devices[number].in_use.store(0, std::memory_order_release);
  if (across_processes()) file_lock::give_back(descriptor_, kDeviceLocks + number);
}

void Fabric::look_for_peers() noexcept {
  if (!across_processes()) return;
  bool any = false;
  for (std::uint32_t number = 0; number < kMaxDevices; ++number) {
    const DeviceEntry& entry = header_->devices[number];
    if (entry.in_use.load(std::memory_order_relaxed) == 0 || own_[number].load()) continue;
    // Loaded before the lock is tested, because a process that takes over the number afterwards increments
    // the claim.
    const std::uint32_t claim = entry.claims.load();
    if (file_lock::taken_by_other(descriptor_, kDeviceLocks + number)) continue;
    // Pairs with gone(): the last writes of the process that has ended.
    any |= gone_[number].exchange(claim, std::memory_order_release) != claim;
  }
  free_links();
  for (std::uint32_t number = 0; any && number < kMaxDevices; ++number)
    if (own_[number].load())  // pairs with LoopbackCm::poll_events(): `gone_`
      header_->devices[number].doorbell.fetch_add(1, std::memory_order_release);
}

/// Frees links whose connecting process has ended while it was claiming the link, or after the acceptor had
/// rejected it. No other function frees such a link or reassigns the number of a device that has claimed one,
/// so a link cannot change between the two loads here.
void Fabric::free_links() noexcept {
  constexpr std::uint32_t kRejected = static_cast<std::uint32_t>(LinkState::Rejected);
  constexpr std::uint32_t kFree = static_cast<std::uint32_t>(LinkState::Free);
  for (std::uint32_t i = 0; i < link_count_; ++i) {
    Link& link = links_[i];
    // Pairs with drop_side(): the acceptor's last state.
    const bool only_connector_left = link.dropped.load(std::memory_order_acquire) == 1u << kAcceptor;
    std::uint32_t state = link.state.load(std::memory_order_acquire);  // pairs with set_state(): the devices
    const std::uint32_t number = state >> kStateBits;
    if (state == kRejected && only_connector_left &&
        gone(link.devices[kConnector].load(), link.claims[kConnector].load()))
      drop_side(link, kConnector);
    else if (number < kMaxDevices && state == claimed_by(number) &&
             gone(number, header_->devices[number].claims.load()))
      link.state.compare_exchange_strong(state, kFree);
  }
}

void Fabric::drop_side(Link& link, std::uint32_t side) noexcept {
  static_cast<void>(SLUICE_INVARIANT(side < 2, table_index));
  constexpr std::uint32_t kBoth = 3;
  // Pairs with drop_side() of the other side: that side no longer uses the link.
  const std::uint32_t before = link.dropped.fetch_or(1u << side, std::memory_order_acq_rel);
  if (before != kBoth && (before | 1u << side) == kBoth)
    // Pairs with LoopbackCm::connect() and take_over(): no side uses the link.
    link.state.store(static_cast<std::uint32_t>(LinkState::Free), std::memory_order_release);
}

void Fabric::locate() noexcept {
  header_ = reinterpret_cast<FabricHeader*>(memory_);
  link_count_ = header_->links;
  arena_bytes_ = header_->arena_bytes;
  links_ = reinterpret_cast<Link*>(memory_ + links_at());
  arenas_ = memory_ + arenas_at(link_count_);
}

/// Writes the header. New pages are zero, which is the initial value of everything else.
void Fabric::initialise(const FabricConfig& config, bool shared) {
  auto* header = reinterpret_cast<FabricHeader*>(memory_);
  header->layout_version = kLayoutVersion;
  header->links = config.links;
  header->total_bytes = bytes_;
  header->arena_bytes = shared ? round_up(config.arena_bytes) : 0;
  header->creator_alive.store(1, std::memory_order_relaxed);
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
  // The file has no name until it is complete, so that no process attaches to an incomplete fabric.
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  File file{::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  if (file.fd < 0 || ::ftruncate(file.fd, static_cast<off_t>(bytes)) != 0)
    throw SetupError(
        "Cannot create the loopback fabric " + path + " (" + std::strerror(errno) +
        "). Its directory has to exist, be writable and have free space. /dev/shm is the usual directory.");
  allocate_file(file.fd, 0, arenas_at(config.links));
  file_lock::take(file.fd, kCreatorLock);
  const std::string anonymous = "/proc/self/fd/" + std::to_string(file.fd);
  std::byte* const memory = map(file.fd, bytes);
  std::shared_ptr<Fabric> fabric(new Fabric(memory, bytes, file.release(), ""));
  fabric->initialise(config, true);
  if (::linkat(AT_FDCWD, anonymous.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0)
    throw SetupError("Cannot create the loopback fabric " + path + " (" + std::strerror(errno) +
                     "). Another data plane may be starting. /proc has to be mounted.");
  fabric->path_ = path;
  return fabric;
}

std::shared_ptr<Fabric> Fabric::attach(const std::string& path) {
  File file{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  if (file.fd < 0)
    throw SetupError("Cannot open the loopback fabric " + path + " (" + std::strerror(errno) +
                     "). sluice-dataplane creates it if its configuration has driver = \"loopback\".");
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
                     " is not a loopback fabric of this version. Restart sluice-dataplane, or use "
                     "programs of one release.");
  fabric->locate();
  return fabric;
}

// --- The device of one process on the fabric

namespace {

constexpr std::uint32_t kMaxSge = 32;

}  // namespace

LoopbackDevice::LoopbackDevice(std::shared_ptr<Fabric> fabric, const DeviceConfig& config)
    : fabric_(std::move(fabric)), config_(config), number_(fabric_->claim_device()), cm_(*fabric_, number_) {
  queue_pairs_.reserve(config.max_queue_pairs);
}

LoopbackDevice::~LoopbackDevice() {
  static_cast<void>(SLUICE_INVARIANT(queue_pairs_.empty(), list_membership));
  fabric_->release_device(number_);
}

DeviceLimits LoopbackDevice::limits() const noexcept {
  return {.max_queue_pairs = config_.max_queue_pairs,
          .max_send_sge = kMaxSge,
          .max_read_sge = kMaxSge,
          .max_windows = kMaxWindows,
          .max_message_bytes = 1u << 30,
          .max_send_bytes = kMaxSendBytes,
          .remote_invalidation = true};
}

/// Allocates registered memory. Across processes, a connecting device allocates from its arena, which the
/// peer has mapped, so that windows can expose it.
MemoryRegion LoopbackDevice::allocate_memory(std::size_t bytes) {
  const std::size_t rounded = page_bytes(bytes);
  if (fabric_->across_processes() && !fabric_->is_creator()) {
    if (rounded > fabric_->arena_bytes() - arena_used_)
      throw SetupError("The loopback arena of " + std::to_string(fabric_->arena_bytes() >> 20) +
                       " MiB is exhausted. Use fewer or smaller buffers.");
    static_cast<void>(SLUICE_INVARIANT(arena_used_ + rounded <= fabric_->arena_bytes(), buffer_bounds));
    std::byte* memory = fabric_->arena(number_) + arena_used_;
    fabric_->allocate(memory, rounded);
    arena_used_ += rounded;
    std::memset(memory, 0, rounded);  // may hold data of an earlier client
    return regions_.add({memory, rounded});
  }
  return regions_.allocate(bytes);
}

MemoryRegion LoopbackDevice::register_memory(std::span<std::byte> bytes) {
  return regions_.add(bytes);
}

MemoryWindow LoopbackDevice::allocate_window() {
  if (window_owners_.size() == kMaxWindows)
    throw SetupError("All " + std::to_string(kMaxWindows) +
                     " memory windows of the loopback device are allocated.");
  window_owners_.push_back(nullptr);
  return {static_cast<std::uint32_t>(window_owners_.size() - 1)};
}

Owned<QueuePair> LoopbackDevice::create_queue_pair(const QueuePairLimits& limits) {
  if (queue_pairs_.size() == config_.max_queue_pairs)
    throw SetupError("All " + std::to_string(config_.max_queue_pairs) +
                     " queue pairs of the loopback device are in use.");
  QueuePairLimits checked = limits;
  checked.max_send_sge = smaller_of(limits.max_send_sge, kMaxSge);
  auto qp = std::make_unique<LoopbackQueuePair>(*this, static_cast<QueuePairNumber>(next_qpn_++), checked);
  static_cast<void>(SLUICE_INVARIANT(queue_pairs_.size() < config_.max_queue_pairs, list_membership));
  queue_pairs_.push_back(qp.get());
  return qp;
}

void LoopbackDevice::remove(LoopbackQueuePair& qp) noexcept {
  static_cast<void>(SLUICE_INVARIANT(has_element(queue_pairs_, &qp), list_membership));
  std::erase(queue_pairs_, &qp);
}

std::optional<std::uint64_t> LoopbackDevice::arena_offset(std::span<const std::byte> bytes) noexcept {
  if (!fabric_->across_processes()) return 0;
  const auto base = reinterpret_cast<std::uintptr_t>(fabric_->arena(number_));
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  if (address < base || address - base > fabric_->arena_bytes() ||
      bytes.size() > fabric_->arena_bytes() - (address - base))
    return std::nullopt;
  return address - base;
}

Rkey LoopbackDevice::next_rkey(std::uint32_t window) noexcept {
  static_cast<void>(SLUICE_INVARIANT(window < window_owners_.size(), table_index));
  auto tag = static_cast<std::uint32_t>(tags_.next()) & ~(kMaxWindows - 1);
  if (tag == 0) tag = kMaxWindows;  // key zero means unbound
  return static_cast<Rkey>(tag | window);
}

std::size_t LoopbackDevice::poll(std::span<WorkCompletion> completions) noexcept {
  SLUICE_INVARIANT_DEBUG(owner_.is_caller(), object_owner);
  CompletionSink sink(completions);
  moved_ = false;
  const std::size_t count = queue_pairs_.size();
  if (next_polled_ >= count) next_polled_ = 0;
  for (std::size_t i = 0; i < count && !sink.full(); ++i) {
    const std::size_t at = next_polled_ + i;
    queue_pairs_[at < count ? at : at - count]->poll(sink);
  }
  ++next_polled_;
  SLUICE_INVARIANT_DEBUG(sink.count() <= completions.size() && queue_pairs_.size() == count, list_membership);
  return sink.count();
}

std::unique_ptr<Loopback> make_device(std::shared_ptr<Fabric> fabric, const DeviceConfig& config) {
  return std::make_unique<LoopbackDevice>(std::move(fabric), config);
}

}  // namespace sluice::rdma::loopback
