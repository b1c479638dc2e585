// SPDX-License-Identifier: Apache-2.0
//
// The two parts of the shared segment, one per writer: each is a file that its plane maps for writing and
// every other process maps read-only. A reader of the other plane's part validates every index, count and
// length before use (dataplane/segment/checked.h).
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
#include "dataplane/segment/desired_state.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/ingress.h"
#include "dataplane/segment/messages.h"
#include "dataplane/segment/process_use.h"
#include "dataplane/segment/slow_calls.h"
#include "dataplane/segment/tables.h"
#include "dataplane/segment/trace.h"
#include "dataplane/segment/upstream_addresses.h"

namespace sluice::segment {

inline constexpr std::uint64_t kMagic = 0x736c756963653032;  // "sluice02"
inline constexpr std::uint32_t kLayoutVersion = 19;

/// Plane that writes the part.
enum class Part : std::uint32_t { Control = 1, Data = 2 };

inline constexpr std::uint32_t kCommandSlots = 256;
inline constexpr std::uint32_t kEventSlots = 512;
inline constexpr std::uint32_t kPuntSlots = 64;
inline constexpr std::uint32_t kPropertySlots = 64;

/// Section of a part. Releases that agree on its offset, size, version and hash can share it.
struct Section {
  std::array<char, 24> name;
  /// Version, incremented if the meaning of the contents changes but their shape does not.
  std::uint32_t version;
  std::uint32_t unused;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t hash;  ///< hash of its shape (dataplane/segment/shape.h)
};
inline constexpr std::size_t kMaxSections = 16;

/// Beginning of a part. It has the same offset and size in every version, so that a release can detect a
/// running plane of another release.
struct PartHead {
  std::uint64_t magic;
  std::uint32_t layout_version;
  Part part;
  std::uint64_t total_bytes;
  Heartbeat plane;
  std::array<Section, kMaxSections> sections;  ///< entries without a name are unused
};

/// Data of one reactor that the control plane writes.
struct ReactorControl {
  RingOfProducer<Command, kCommandSlots> commands;
  RingOfConsumer events;
  RingOfConsumer punt_up;
  RingOfProducer<Punt, kPuntSlots> punt_down;
  RingOfConsumer properties_up;
  RingOfProducer<PropertyPart, kPropertySlots> properties_down;
  DesiredStatePart wanted;
  std::atomic<std::uint32_t> peaks_read;
};

/// Data of one reactor that the reactor writes.
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
  std::atomic<std::uint32_t> incarnations;  ///< number assigned so far; continues in the next data plane
  std::array<SeqLock<ConnectionInfo>, kMaxConnections> connections;
  alignas(kCacheLine) std::array<ConnectionUse, kMaxConnections> use;
  alignas(kCacheLine) CallTable calls;
  TraceRing trace;
  std::array<UpstreamArea, kMaxUpstreams> upstreams;
  IngressArea ingress;
};

struct ControlState {
  std::atomic<std::uint64_t> recomputation_ns;  ///< duration of the last credit recomputation
  std::atomic<std::uint64_t> longest_stall_ns;  ///< longest stall of its loop since its start
  std::atomic<std::uint64_t> recent_stall_ns;   ///< longest stall of its loop in the last two minutes
  std::atomic<std::uint32_t> draining;
  /// Epoch of the control plane that has taken over and reads the rings. It is set later than that of
  /// Heartbeat::owner: entries that a predecessor has not read are dropped in between, and reactors then
  /// resend requests that they still wait for.
  std::atomic<std::uint32_t> reading_epoch;
};

struct ControlPart {
  PartHead head;
  TwoCopies<ConfigBlock> config;
  std::array<ReactorControl, kMaxReactors> reactors;
  /// Read and written only by the control plane, which rewrites all of them.
  std::array<std::atomic<std::uint64_t>, kControlCounterRoom> control_counters;
  std::array<std::atomic<std::uint64_t>, kLockGaugeRoom> lock_gauges;
  ControlState state;
  SharedUpstreamAddresses upstream_addresses;  ///< writer: the thread that resolves them
  SeqLock<ClientTable> clients;
  /// Value of DataPart::start_asked for which `config` was published; stored after `config`.
  std::atomic<std::uint64_t> start_answered;
  SeqLock<PathQuestion> path_question;  ///< writer: the MOUNT thread
};

struct DataPart {
  PartHead head;
  /// Generation of the configuration whose reloadable part is applied.
  std::atomic<std::uint64_t> generation_applied;
  SeqLock<UpstreamPlaces> upstream_places;
  std::array<ReactorData, kMaxReactors> reactors;
  std::array<SeqLock<ExportInfo>, kMaxExports> exports;  ///< writer: the reactor that owns the exports
  SeqLock<MemoryTable> memory;                           ///< written at start
  SeqLock<CaptureStatus> capture_status;
  SeqLock<CounterNames> counter_names;  ///< written at start
  ProcessUse process;                   ///< written by the main thread, each second
  SlowCalls slow_calls;                 ///< each reactor writes its own
  /// verbs: epoch of the control plane in charge if its channel is held (segment/kept_channel.h), otherwise
  /// zero. Written by the main thread.
  std::atomic<std::uint32_t> kept_epoch;
  /// Number of the start, different for each one. A starting data plane waits until `start_answered` has this
  /// number. Settings that apply at start only then stay unchanged in `config` while it runs.
  std::atomic<std::uint64_t> start_asked;
  SeqLock<PathAnswer> path_answer;  ///< writer: the reactor that owns the exports
};

}  // namespace sluice::segment
