// SPDX-License-Identifier: Apache-2.0
//
// The one shared memory segment between the planes: a file under /dev/shm with a versioned header and fixed
// arrays.
//
// The control plane creates it; it outlives both. Who writes what stands at each member; everybody else
// reads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

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

namespace sluice::segment {

inline constexpr std::uint64_t kMagic = 0x736c756963653031;  // "sluice01"
inline constexpr std::uint32_t kLayoutVersion = 10;
/// A plane whose beat has not moved for this long counts as dead or stuck.
inline constexpr std::uint64_t kHeartbeatTimeoutNs = 3'000'000'000;

/// Proof of life of one plane: its process, and a word that it keeps counting up.
struct Heartbeat {
  alignas(kCacheLine) std::atomic<std::uint32_t> pid;
  std::atomic<std::uint64_t> beats;
  std::atomic<std::uint64_t> beat_ns;     ///< monotonic clock, which is one for all processes
  std::atomic<std::uint64_t> started_ns;  ///< wall clock
};

struct ReactorArea {
  SpscRing<Command, 256> commands;             ///< control plane to reactor
  SpscRing<Event, 512> events;                 ///< reactor to control plane
  SpscRing<Punt, 64> punt_up;                  ///< reactor to control plane
  SpscRing<Punt, 64> punt_down;                ///< control plane to reactor
  SpscRing<PropertyPart, 64> properties_up;    ///< reactor to control plane
  SpscRing<PropertyPart, 64> properties_down;  ///< control plane to reactor
  // The rest is the reactor's.
  alignas(kCacheLine) std::array<std::array<std::atomic<std::uint64_t>, kTransportCounterCount>,
                                 kMaxClasses> transport_counters;
  std::array<std::atomic<std::uint64_t>, kReactorCounterCount> counters;
  std::array<std::atomic<std::uint64_t>, kInvariantCount> invariant_failures;
  std::array<std::atomic<std::uint64_t>, kMaxDeviceStatistics> device_statistics;
  std::array<std::atomic<std::uint32_t>, kSlotStateCount> slots_in_state;
  alignas(kCacheLine) SeqLock<ReactorInfo> info;
  std::array<SeqLock<ConnectionInfo>, kMaxConnections> connections;
  alignas(kCacheLine) std::array<ConnectionUse, kMaxConnections> use;
  alignas(kCacheLine) CallTable calls;
  TraceRing trace;
  std::array<UpstreamArea, kMaxUpstreams> upstreams;
  IngressArea ingress;
};

/// Magic, version and heartbeats stand at the same place in every version: one release can tell whether a
/// plane of another is alive.
struct Layout {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t counter_count;  ///< of all kinds
  std::uint64_t total_bytes;
  Heartbeat control_plane;
  Heartbeat data_plane;
  SeqLock<ConfigBlock> config;  ///< control plane
  std::atomic<std::uint64_t>
      generation_applied;  ///< data plane: of the configuration, what can change while it runs
  std::array<ReactorArea, kMaxReactors> reactors;
  std::array<SeqLock<ExportInfo>, kMaxExports> exports;  ///< the reactor that owns the exports
  SeqLock<MemoryTable> memory;                           ///< data plane, at start
  SeqLock<CaptureRequest> capture_request;               ///< control plane
  std::array<std::atomic<std::uint64_t>, kControlCounterCount> control_counters;  ///< control plane
  std::atomic<std::uint64_t> recomputation_ns;  ///< control plane: how long the last one of credits took
  std::atomic<std::uint32_t> draining;          ///< control plane
  std::atomic<std::uint64_t> kept_channel;      ///< control plane, verbs: segment/kept_channel.h
  SeqLock<CaptureStatus> capture_status;        ///< data plane
};

/// Age of a heartbeat in nanoseconds; the largest value when there never was one.
std::uint64_t heartbeat_age_ns(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;
/// Beats, and its process exists.
bool alive(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;
/// Takes over a heartbeat for this process.
void start_heartbeat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns,
                     std::uint64_t wall_now_ns) noexcept;
void beat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;

class Segment {
 public:
  /// Control plane: attaches to a segment of this layout, or makes a fresh one. `name` is a file name without
  /// folder. Throws SetupError when the file there is another user's, or a data plane of another
  /// release works with it.
  static std::unique_ptr<Segment> open_or_create(const std::string& name);
  /// Data plane and onlookers. Throws SetupError when there is none of this layout.
  static std::unique_ptr<Segment> attach(const std::string& name);
  static void remove(const std::string& name) noexcept;
  static std::string path_of(const std::string& name) { return "/dev/shm/" + name; }
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Layout& layout() noexcept { return *layout_; }
  bool created() const noexcept { return created_; }

 private:
  Segment(Layout* layout, bool created) : layout_(layout), created_(created) {}
  Layout* layout_;
  bool created_;
};

std::uint64_t monotonic_ns() noexcept;
std::uint64_t wall_ns() noexcept;

}  // namespace sluice::segment
