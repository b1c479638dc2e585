// SPDX-License-Identifier: Apache-2.0
//
// The two parts of the shared segment, one per writer: each is a file that its plane maps for writing and
// every other process maps read-only. A reader of the other plane's part validates every index, count and
// length before use (dataplane/segment/checked.h). Layout refers to both parts where a process has mapped
// them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/base/spsc_ring.h"
#include "dataplane/segment/calls.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/control_tables.h"
#include "dataplane/segment/counters.h"
#include "dataplane/segment/desired_state.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/messages.h"
#include "dataplane/segment/tables.h"

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
  std::uint64_t hash;  ///< hash of its shape (dataplane/segment/shapes.h)
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
  ReverseArea reverse;
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
  /// verbs: epoch of the control plane in charge if its channel is held (segment/channels.h), otherwise
  /// zero. Written by the main thread.
  std::atomic<std::uint32_t> kept_epoch;
  /// Number of the start, different for each one. A starting data plane waits until `start_answered` has this
  /// number. Settings that apply at start only then stay unchanged in `config` while it runs.
  std::atomic<std::uint64_t> start_asked;
  SeqLock<PathAnswer> path_answer;  ///< writer: the reactor that owns the exports
};

/// Returns the sections of a part, as defined by this release. A release reads and writes the file of another
/// release if the sections are equal; an additional or missing counter does not change a section. Used at
/// setup.
const std::array<Section, kMaxSections>& sections_of(Part part) noexcept;

/// Returns a clause that names the first section that differs; empty if none does. Sections that only
/// `theirs` has are unknown and not used.
std::string difference(Part part, const std::array<Section, kMaxSections>& theirs, std::uint64_t file_bytes);

/// References to a member of the control plane's part and of the data plane's part.
template <typename T>
using OfControl = T&;
template <typename T>
using OfData = T&;

struct ReactorArea {
  ReactorArea(ReactorControl& control, ReactorData& data) noexcept
      : commands(control.commands, data.commands),
        events(data.events, control.events),
        punt_up(data.punt_up, control.punt_up),
        punt_down(control.punt_down, data.punt_down),
        properties_up(data.properties_up, control.properties_up),
        properties_down(control.properties_down, data.properties_down),
        wanted(control.wanted, data.hints),
        peaks_read(control.peaks_read),
        transport_counters(data.transport_counters),
        counters(data.counters),
        invariant_failures(data.invariant_failures),
        device_statistics(data.device_statistics),
        slots_in_state(data.slots_in_state),
        pools(data.pools),
        info(data.info),
        incarnations(data.incarnations),
        connections(data.connections),
        use(data.use),
        calls(data.calls),
        trace(data.trace),
        upstreams(data.upstreams),
        reverse(data.reverse) {}

  Ring<Command, kCommandSlots> commands;               ///< control plane to reactor
  Ring<Event, kEventSlots> events;                     ///< reactor to control plane
  Ring<Punt, kPuntSlots> punt_up;                      ///< reactor to control plane
  Ring<Punt, kPuntSlots> punt_down;                    ///< control plane to reactor
  Ring<PropertyPart, kPropertySlots> properties_up;    ///< reactor to control plane
  Ring<PropertyPart, kPropertySlots> properties_down;  ///< control plane to reactor
  DesiredStateArea wanted;                             ///< control plane: desired state of each connection
  /// Number of times that the control plane has read every `peak_busy`.
  OfControl<decltype(ReactorControl::peaks_read)> peaks_read;
  // The reactor writes the members below.
  OfData<decltype(ReactorData::transport_counters)> transport_counters;
  OfData<decltype(ReactorData::counters)> counters;
  OfData<decltype(ReactorData::invariant_failures)> invariant_failures;
  OfData<decltype(ReactorData::device_statistics)> device_statistics;
  OfData<decltype(ReactorData::slots_in_state)> slots_in_state;
  OfData<decltype(ReactorData::pools)> pools;
  OfData<decltype(ReactorData::info)> info;
  OfData<decltype(ReactorData::incarnations)> incarnations;
  OfData<decltype(ReactorData::connections)> connections;
  OfData<decltype(ReactorData::use)> use;
  OfData<CallTable> calls;
  OfData<TraceRing> trace;
  OfData<decltype(ReactorData::upstreams)> upstreams;
  OfData<ReverseArea> reverse;
};

/// Both parts of the segment as a process sees them: references to where they are mapped. Layout itself is
/// not in shared memory. A member is written by the plane whose part contains it and is read-only in any
/// other process. Any thread may read it.
struct Layout {
  Layout(ControlPart& control, DataPart& data) noexcept
      : Layout(control, data, std::make_index_sequence<kMaxReactors>()) {}
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  OfControl<Heartbeat> control_plane;
  OfData<Heartbeat> data_plane;
  OfControl<decltype(ControlPart::config)> config;
  OfData<decltype(DataPart::generation_applied)> generation_applied;
  OfData<decltype(DataPart::upstream_places)> upstream_places;
  std::array<ReactorArea, kMaxReactors> reactors;
  OfData<decltype(DataPart::exports)> exports;
  OfData<decltype(DataPart::memory)> memory;
  OfControl<decltype(ControlPart::control_counters)> control_counters;
  OfControl<decltype(ControlPart::lock_gauges)> lock_gauges;
  OfControl<decltype(ControlState::recomputation_ns)> recomputation_ns;
  OfControl<decltype(ControlState::longest_stall_ns)> longest_stall_ns;
  OfControl<decltype(ControlState::recent_stall_ns)> recent_stall_ns;
  OfControl<decltype(ControlState::draining)> draining;
  OfControl<decltype(ControlState::reading_epoch)> reading_epoch;
  OfData<decltype(DataPart::kept_epoch)> kept_epoch;
  OfData<decltype(DataPart::start_asked)> start_asked;
  OfControl<decltype(ControlPart::start_answered)> start_answered;
  OfControl<decltype(ControlPart::path_question)> path_question;
  OfData<decltype(DataPart::path_answer)> path_answer;
  OfData<decltype(DataPart::capture_status)> capture_status;
  OfData<ProcessUse> process;
  OfData<SlowCalls> slow_calls;
  OfControl<decltype(ControlPart::clients)> clients;
  OfControl<SharedUpstreamAddresses> upstream_addresses;
  /// Indices of the data plane's counters. Belongs to this process, not to the segment.
  CounterPlaces places;

 private:
  template <std::size_t... I>
  Layout(ControlPart& control, DataPart& data, std::index_sequence<I...>) noexcept
      : control_plane(control.head.plane),
        data_plane(data.head.plane),
        config(control.config),
        generation_applied(data.generation_applied),
        upstream_places(data.upstream_places),
        reactors{ReactorArea(control.reactors[I], data.reactors[I])...},
        exports(data.exports),
        memory(data.memory),
        control_counters(control.control_counters),
        lock_gauges(control.lock_gauges),
        recomputation_ns(control.state.recomputation_ns),
        longest_stall_ns(control.state.longest_stall_ns),
        recent_stall_ns(control.state.recent_stall_ns),
        draining(control.state.draining),
        reading_epoch(control.state.reading_epoch),
        kept_epoch(data.kept_epoch),
        start_asked(data.start_asked),
        start_answered(control.start_answered),
        path_question(control.path_question),
        path_answer(data.path_answer),
        capture_status(data.capture_status),
        process(data.process),
        slow_calls(data.slow_calls),
        clients(control.clients),
        upstream_addresses(control.upstream_addresses) {}
};

}  // namespace sluice::segment
