// SPDX-License-Identifier: Apache-2.0
//
// The memory shared by the two sides of loopback connections: wires, steering tags and connection management.
//
// Within a process it is anonymous memory; across processes, a file created by the serving side. A process
// that may open the file is trusted with availability, but not with memory safety: each side reads a word
// once and then checks it, so that a peer that corrupts the fabric can break only its own connections.
//
// Each device has a number. Its process holds a lock on a byte of the file until it exits, so that other
// processes detect its end regardless of the cause and of the PID namespace. Its connections are then
// closed, and its number and its links are free again.
//
// Creation is setup and throws SetupError. Afterwards a Side is written by its own device, or by the other
// device once the owner's process has died. Words that both sides write are atomics, and bulk data is ordered
// by the release store of an atomic. Sizes in bytes. Devices share ownership of the Fabric, which unmaps the
// memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "pmd/connection_manager.h"

namespace sluice::rdma::loopback {

inline constexpr std::uint32_t kMaxLinks = 256;
/// Number of memory windows per device. The window's number is in the low bits of the rkey.
inline constexpr std::uint32_t kMaxWindows = 4096;
inline constexpr std::uint32_t kMaxDevices = 32;
inline constexpr std::uint32_t kMaxListeners = 32;

/// Size of the wire of one direction. A Send with its record header must fit in a quarter.
inline constexpr std::size_t kWireBytes = 256u << 10;
inline constexpr std::uint32_t kMaxSendBytes = kWireBytes / 4 - kCacheLine;

/// A steering tag, published by its owner. `key` is written last and cleared first.
struct alignas(32) WindowEntry {
  std::atomic<std::uint32_t> key;  ///< rkey; zero if unbound
  std::atomic<std::uint32_t> access;
  std::atomic<std::uint64_t> address;  ///< virtual address in the owner's process
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> arena_offset;  ///< across processes: offset of `address` in the owner's arena
};
static_assert(sizeof(WindowEntry) == 32);

/// The half of a link that one side writes and the other reads.
struct Side {
  // Fields of the sender.
  alignas(kCacheLine) std::atomic<std::uint64_t> produced;  ///< free-running byte position in the wire
  // Fields of the receiver. `consumed` is a position in the other side's wire and acknowledges its Sends.
  alignas(kCacheLine) std::atomic<std::uint64_t> consumed;
  std::atomic<std::uint32_t> fault;  ///< WcStatus for the Send at `consumed`, or zero
  std::atomic<std::uint32_t> dead;   ///< this side's queue pair is in Error
  // Field of the initiator of RDMA Reads and Writes: hazard pointer, the steering tag in use. The tag's owner
  // waits for it before it completes an invalidation.
  alignas(kCacheLine) std::atomic<std::uint32_t> hazard;
  // Fields written when connecting.
  alignas(kCacheLine) std::atomic<std::uint32_t> rnr_retry;
  std::atomic<std::uint32_t> arena;  ///< number of the arena that holds its windows
  std::array<WindowEntry, kMaxWindows> windows;
  alignas(kCacheLine) std::array<std::byte, kWireBytes> wire;
};

enum class LinkState : std::uint32_t {
  Free,
  Claimed,    ///< being filled in by the connecting side, whose device number is above kStateBits
  Requested,  ///< accept() or reject() is pending
  Accepted,   ///< not yet noticed by the connecting side
  Rejected,   ///< not yet noticed by the connecting side
  Established,
};

inline constexpr std::uint32_t kStateBits = 8;
constexpr std::uint32_t claimed_by(std::uint32_t device) noexcept {
  return static_cast<std::uint32_t>(LinkState::Claimed) | device << kStateBits;
}

inline constexpr std::uint32_t kConnector = 0;
inline constexpr std::uint32_t kAcceptor = 1;

struct Link {
  alignas(kCacheLine) std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> generation;
  std::atomic<std::uint32_t> dropped;  ///< bit per side that no longer uses the link; the second bit frees it
  std::atomic<std::uint32_t> closed;   ///< bit per side that has disconnected
  std::atomic<std::uint32_t> port;
  std::atomic<std::uint32_t> devices[2];  ///< device number of each side
  std::atomic<std::uint32_t> claims[2];   ///< DeviceEntry::claims of that device
  std::atomic<std::uint32_t> connector_pid;
  std::atomic<std::uint32_t> private_data_bytes[2];
  std::array<std::byte, kMaxPrivateData> private_data[2];
  Side sides[2];
};

struct DeviceEntry {
  alignas(kCacheLine) std::atomic<std::uint32_t> in_use;
  std::atomic<std::uint32_t> doorbell;  ///< incremented when connection management has events for the device
  std::atomic<std::uint32_t> claims;    ///< number of assignments of this entry; distinguishes its successive
                                        ///< holders
};

struct Listener {
  std::atomic<std::uint32_t> port;  ///< port plus one; zero if unused
  std::atomic<std::uint32_t> device;
};

struct FabricHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t links;
  std::uint64_t total_bytes;
  std::uint64_t arena_bytes;  ///< per device; zero within a process, where memory is addressed directly
  std::atomic<std::uint32_t> creator_alive;
  std::array<DeviceEntry, kMaxDevices> devices;
  std::array<Listener, kMaxListeners> listeners;
};

struct FabricConfig {
  std::uint32_t links = 64;
  /// Memory per connecting device that windows can expose. Across processes only.
  std::uint64_t arena_bytes = 256ull << 20;
};

class Fabric {
 public:
  static std::shared_ptr<Fabric> in_process(const FabricConfig& config = {});
  /// Creates the file (mode 0600) with all its memory allocated except the arenas, replacing a file whose
  /// creator has ended. The destructor removes the file. Throws SetupError, also if another process is the
  /// creator of that file.
  static std::shared_ptr<Fabric> create(const std::string& path, const FabricConfig& config = {});
  static std::shared_ptr<Fabric> attach(const std::string& path);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  FabricHeader& header() noexcept { return *header_; }
  Link& link(std::uint32_t number) noexcept {
    SLUICE_INVARIANT_DEBUG(number < link_count_, table_index);
    return links_[number];
  }
  std::uint32_t links() const noexcept { return link_count_; }
  bool across_processes() const noexcept { return arena_bytes_ > 0; }
  std::uint64_t arena_bytes() const noexcept { return arena_bytes_; }
  bool is_creator() const noexcept { return !path_.empty(); }

  /// Setup. Assigns a number to a device of this process. Throws SetupError when all numbers are in use.
  std::uint32_t claim_device();
  void release_device(std::uint32_t number) noexcept;
  /// Finds devices whose processes have ended, and frees the links that they were setting up. Rings the
  /// doorbells of this process's devices, which then close their connections with them. Makes system calls;
  /// for a thread that does not poll, one at a time.
  void look_for_peers() noexcept;
  /// Reports whether the process that held the number with this claim has ended. Any thread.
  bool gone(std::uint32_t device, std::uint32_t claim) const noexcept {
    // Pairs with look_for_peers(): the last writes of that process.
    return gone_[device % kMaxDevices].load(std::memory_order_acquire) == claim;
  }
  /// Records that a side no longer uses the link. Idempotent. Any thread.
  void drop_side(Link& link, std::uint32_t side) noexcept;

  std::byte* arena(std::uint32_t device) noexcept {
    SLUICE_INVARIANT_DEBUG(device < kMaxDevices, table_index);
    return arenas_ + device * arena_bytes_;
  }
  /// Setup. Allocates `bytes` of an arena before they are accessed, because memory missing on access would
  /// kill both processes. Throws SetupError on failure.
  void allocate(const std::byte* memory, std::size_t bytes);
  /// Reports whether the creator still has the fabric open. Stays true if its process was killed.
  bool creator_alive() const noexcept { return header_->creator_alive.load(std::memory_order_relaxed) != 0; }

 private:
  Fabric(std::byte* memory, std::size_t bytes, int descriptor, std::string path);
  void initialise(const FabricConfig& config, bool shared);
  void locate() noexcept;
  bool take_over(std::uint32_t number) noexcept;
  void free_links() noexcept;

  std::byte* memory_;
  std::size_t bytes_;
  int descriptor_;    ///< file descriptor, which holds this process's locks; -1 within a process
  std::string path_;  ///< path that the destructor removes; empty if not the creator
  std::array<std::atomic<bool>, kMaxDevices> own_{};            ///< numbers of this process's devices
  std::array<std::atomic<std::uint32_t>, kMaxDevices> gone_{};  ///< claims whose processes have ended
  FabricHeader* header_ = nullptr;
  Link* links_ = nullptr;
  std::byte* arenas_ = nullptr;
  std::uint32_t link_count_ = 0;
  std::uint64_t arena_bytes_ = 0;
};

}  // namespace sluice::rdma::loopback
