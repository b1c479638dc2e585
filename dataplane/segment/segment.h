// SPDX-License-Identifier: Apache-2.0
//
// The shared memory segment between the planes: one file under /dev/shm with a versioned header and fixed
// arrays.
//
// The control plane creates it; it outlives both processes. The writer of each member is documented at the
// member; every other process only reads. Segment itself is for the main threads at setup; the members of
// Layout may be read by any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/spsc_ring.h"
#include "dataplane/segment/call_table.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/counters.h"
#include "dataplane/segment/ingress.h"
#include "dataplane/segment/messages.h"
#include "dataplane/segment/tables.h"
#include "dataplane/segment/trace.h"
#include "dataplane/segment/upstream_addresses.h"
#include "dataplane/segment/wanted.h"

namespace sluice::segment {

inline constexpr std::uint64_t kMagic = 0x736c756963653031;  // "sluice01"
inline constexpr std::uint32_t kLayoutVersion = 18;
/// A plane whose heartbeat has not advanced for this long counts as dead or stuck.
inline constexpr std::uint64_t kHeartbeatTimeoutNs = 3'000'000'000;

/// Liveness of one plane: a counter that it keeps incrementing. Of the same size in every release.
struct Heartbeat {
  alignas(
      kCacheLine) std::atomic<std::uint32_t> pid;  ///< in its own PID namespace: for people. Zero: it ended
  std::atomic<std::uint64_t> beats;
  std::atomic<std::uint64_t> beat_ns;         ///< monotonic clock, the same for all processes of the host
  std::atomic<std::uint64_t> started_ns;      ///< wall clock
  std::array<std::atomic<char>, 16> version;  ///< of the program, cut if longer; empty: it did not say
  std::atomic<std::uint64_t> owner;           ///< segment/ownership.h; its epoch never decreases
};
static_assert(sizeof(Heartbeat) == kCacheLine);
/// Counts the processes that have been this plane, from one. Zero: there was none.
constexpr std::uint32_t epoch_of(std::uint64_t owner) noexcept {
  return static_cast<std::uint32_t>(owner >> 32);
}

struct ReactorArea {
  SpscRing<Command, 256> commands;             ///< control plane to reactor
  SpscRing<Event, 512> events;                 ///< reactor to control plane
  SpscRing<Punt, 64> punt_up;                  ///< reactor to control plane
  SpscRing<Punt, 64> punt_down;                ///< control plane to reactor
  SpscRing<PropertyPart, 64> properties_up;    ///< reactor to control plane
  SpscRing<PropertyPart, 64> properties_down;  ///< control plane to reactor
  WantedArea wanted;                           ///< control plane: what it wants of each connection
  // Written by the reactor from here on.
  alignas(kCacheLine) std::array<std::array<std::atomic<std::uint64_t>, kTransportCounterCount>,
                                 kMaxClasses> transport_counters;
  std::array<std::atomic<std::uint64_t>, kReactorCounterCount> counters;
  std::array<std::atomic<std::uint64_t>, kInvariantCount> invariant_failures;
  std::array<std::atomic<std::uint64_t>, kMaxDeviceStatistics> device_statistics;
  std::array<std::atomic<std::uint32_t>, kSlotStateCount> slots_in_state;
  std::array<PoolUse, kSharedPools.size()> pools;
  alignas(kCacheLine) SeqLock<ReactorInfo> info;
  std::atomic<std::uint32_t> incarnations;  ///< given to connections so far; goes on with the next data plane
  std::array<SeqLock<ConnectionInfo>, kMaxConnections> connections;
  alignas(kCacheLine) std::array<ConnectionUse, kMaxConnections> use;
  alignas(kCacheLine) CallTable calls;
  TraceRing trace;
  std::array<UpstreamArea, kMaxUpstreams> upstreams;
  IngressArea ingress;
  std::atomic<std::uint32_t> peaks_read;  ///< control plane: how often it has read every `peak_busy`
};

/// Magic, version and heartbeats have the same offsets in every version, so that a release can see whether a
/// plane of another release is alive.
struct Layout {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t counter_count;  ///< kCounterCount of the creator
  std::uint64_t total_bytes;
  Heartbeat control_plane;
  Heartbeat data_plane;
  SeqLock<ConfigBlock> config;  ///< control plane
  std::atomic<std::uint64_t>
      generation_applied;  ///< data plane: configuration generation whose reloadable part is in force
  std::array<ReactorArea, kMaxReactors> reactors;
  std::array<SeqLock<ExportInfo>, kMaxExports> exports;  ///< the reactor that owns the exports
  SeqLock<MemoryTable> memory;                           ///< data plane, at start
  std::array<std::atomic<std::uint64_t>, kControlCounterCount> control_counters;  ///< control plane
  std::array<std::atomic<std::uint64_t>, std::size(kLockGauges)> lock_gauges;     ///< control plane
  std::atomic<std::uint64_t> recomputation_ns;  ///< control plane: duration of the last credit recomputation
  std::atomic<std::uint64_t> longest_stall_ns;  ///< control plane: of its loop, since its start
  std::atomic<std::uint64_t> recent_stall_ns;   ///< control plane: of its loop, in the last two minutes
  std::atomic<std::uint32_t> draining;          ///< control plane
  /// Epoch of the control plane that has taken over and reads the rings. It is later than that of Heartbeat::owner: what
  /// a predecessor has not read is dropped in between, and reactors then repeat what they wait for.
  std::atomic<std::uint32_t> reading_epoch;
  std::atomic<std::uint64_t> kept_channel;     ///< control plane, verbs: segment/kept_channel.h
  SeqLock<CaptureStatus> capture_status;       ///< data plane
  SharedUpstreamAddresses upstream_addresses;  ///< control plane, the thread that resolves them
};

/// Age of a heartbeat in ns; the largest value if the plane has never started.
std::uint64_t heartbeat_age_ns(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;
/// Whether the heartbeat is recent. Right after a plane was killed it still is: Segment::data_plane_runs().
bool alive(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;
/// Version of the plane's program; empty if that does not say it.
std::string version_of(const Heartbeat& heartbeat);
/// Claims a heartbeat for this process.
void start_heartbeat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns,
                     std::uint64_t wall_now_ns) noexcept;
void beat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;

class Segment {
 public:
  /// One of this layout: the file of that name, or a new one, which is shown at once. For tests and tools: a
  /// control plane opens its own with ControlOwnership. Throws SetupError.
  static std::unique_ptr<Segment> open_or_create(const std::string& name);
  /// Data plane and tools. Throws SetupError if there is no segment of this layout.
  static std::unique_ptr<Segment> attach(const std::string& name);
  /// A new one, all of its memory allocated, that no other process sees before show(). `name` is a file name
  /// without a directory. Throws SetupError.
  static std::unique_ptr<Segment> make(const std::string& name);
  /// Takes over the descriptor of a file of this layout. Throws SetupError.
  static std::unique_ptr<Segment> map(int descriptor);
  static void remove(const std::string& name) noexcept;
  static std::string path_of(const std::string& name) { return "/dev/shm/" + name; }
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Layout& layout() noexcept { return *layout_; }
  bool created() const noexcept { return created_; }
  /// Gives the new file its name. False if there is a file of that name. Throws SetupError.
  bool show(const std::string& name);
  /// Of the file, for locks: open while the segment is.
  int descriptor() const noexcept { return descriptor_; }
  /// Whether a process holds the data plane's lock, in whatever PID namespace it is.
  bool data_plane_runs() const noexcept;

 private:
  Segment(Layout* layout, int descriptor, bool created)
      : layout_(layout), descriptor_(descriptor), created_(created) {}
  Layout* layout_;
  int descriptor_;
  bool created_;
};

/// Why an open file must not be used as a segment at all, such as that it is another user's; or empty.
/// /dev/shm is world-writable.
std::string why_untrusted(int descriptor);
/// The same, or why it is not a segment of this layout; or empty.
std::string defect_of(int descriptor);

std::uint64_t monotonic_ns() noexcept;
std::uint64_t wall_ns() noexcept;

}  // namespace sluice::segment
