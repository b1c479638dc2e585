// SPDX-License-Identifier: Apache-2.0
//
// The two parts of the shared segment, by who writes them: each is a file that its plane maps for writing and every
// other process for reading only. Whoever reads the other plane's part takes no index, count or length from it without
// a look (dataplane/segment/checked.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/base/spsc_ring.h"
#include "dataplane/base/two_copies.h"
#include "dataplane/segment/call_table.h"
#include "dataplane/segment/client_table.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/counter_names.h"
#include "dataplane/segment/counters.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/ingress.h"
#include "dataplane/segment/messages.h"
#include "dataplane/segment/process_use.h"
#include "dataplane/segment/slow_calls.h"
#include "dataplane/segment/tables.h"
#include "dataplane/segment/trace.h"
#include "dataplane/segment/upstream_addresses.h"
#include "dataplane/segment/wanted.h"

namespace sluice::segment {

inline constexpr std::uint64_t kMagic = 0x736c756963653032;  // "sluice02"
inline constexpr std::uint32_t kLayoutVersion = 19;

/// Which plane writes it.
enum class Part : std::uint32_t { Control = 1, Data = 2 };

inline constexpr std::uint32_t kCommandSlots = 256;
inline constexpr std::uint32_t kEventSlots = 512;
inline constexpr std::uint32_t kPuntSlots = 64;
inline constexpr std::uint32_t kPropertySlots = 64;

/// A section is shared by releases that agree on its place, size, version and hash.
struct Section {
  std::array<char, 24> name;
  std::uint32_t
      version;  ///< changes when what stands there means something else, though its shape is the same
  std::uint32_t unused;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t hash;  ///< of its shape: dataplane/segment/shape.h
};
inline constexpr std::size_t kMaxSections = 16;

/// Has the same place and size in every version, so that a release can see whether a plane of another one is alive.
struct PartHead {
  std::uint64_t magic;
  std::uint32_t layout_version;
  Part part;
  std::uint64_t total_bytes;
  Heartbeat plane;
  std::array<Section, kMaxSections> sections;  ///< those without a name are none
};

/// Of one reactor, written by the control plane.
struct ReactorControl {
  RingOfProducer<Command, kCommandSlots> commands;
  RingOfConsumer events;
  RingOfConsumer punt_up;
  RingOfProducer<Punt, kPuntSlots> punt_down;
  RingOfConsumer properties_up;
  RingOfProducer<PropertyPart, kPropertySlots> properties_down;
  WantedPart wanted;
  std::atomic<std::uint32_t> peaks_read;
};

/// Of one reactor, written by it.
struct ReactorData {
  RingOfConsumer commands;
  RingOfProducer<Event, kEventSlots> events;
  RingOfProducer<Punt, kPuntSlots> punt_up;
  RingOfConsumer punt_down;
  RingOfProducer<PropertyPart, kPropertySlots> properties_up;
  RingOfConsumer properties_down;
  RingOfConsumer hints;
  alignas(kCacheLine) std::array<std::array<std::atomic<std::uint64_t>, kTransportCounterRoom>,
                                 kMaxClasses> transport_counters;
  std::array<std::atomic<std::uint64_t>, kReactorCounterRoom> counters;
  std::array<std::atomic<std::uint64_t>, kInvariantRoom> invariant_failures;
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
};

struct ControlState {
  std::atomic<std::uint64_t> recomputation_ns;  ///< duration of the last credit recomputation
  std::atomic<std::uint64_t> longest_stall_ns;  ///< of its loop, since its start
  std::atomic<std::uint64_t> recent_stall_ns;   ///< of its loop, in the last two minutes
  std::atomic<std::uint32_t> draining;
  /// Epoch of the control plane that has taken over and reads the rings. It is later than that of Heartbeat::owner: what
  /// a predecessor has not read is dropped in between, and reactors then repeat what they wait for.
  std::atomic<std::uint32_t> reading_epoch;
};

struct ControlPart {
  PartHead head;
  TwoCopies<ConfigBlock> config;
  std::array<ReactorControl, kMaxReactors> reactors;
  /// Only the control plane reads them, and writes all of them anew.
  std::array<std::atomic<std::uint64_t>, kControlCounterRoom> control_counters;
  std::array<std::atomic<std::uint64_t>, kLockGaugeRoom> lock_gauges;
  ControlState state;
  SharedUpstreamAddresses upstream_addresses;  ///< the thread that resolves them
  SeqLock<ClientTable> clients;
  /// DataPart::start_asked of the data plane that `config` has been published for, after it.
  std::atomic<std::uint64_t> start_answered;
  SeqLock<PathQuestion> path_question;  ///< the MOUNT thread
};

struct DataPart {
  PartHead head;
  std::atomic<std::uint64_t>
      generation_applied;  ///< configuration generation whose reloadable part is in force
  SeqLock<UpstreamPlaces> upstream_places;
  std::array<ReactorData, kMaxReactors> reactors;
  std::array<SeqLock<ExportInfo>, kMaxExports> exports;  ///< the reactor that owns the exports
  SeqLock<MemoryTable> memory;                           ///< at start
  SeqLock<CaptureStatus> capture_status;
  SeqLock<CounterNames> counter_names;  ///< at start
  ProcessUse process;                   ///< the main thread, each second
  SlowCalls slow_calls;                 ///< each reactor its own
  /// verbs: the control plane in charge whose channel is held (segment/kept_channel.h). Zero: its is not. Main thread.
  std::atomic<std::uint32_t> kept_epoch;
  /// The data plane that starts waits for a configuration with this number, which no start before it had. What it then starts
  /// with stays as it is in `config` while it runs.
  std::atomic<std::uint64_t> start_asked;
  SeqLock<PathAnswer> path_answer;  ///< the reactor that owns the exports
};

}  // namespace sluice::segment
