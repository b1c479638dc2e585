// SPDX-License-Identifier: Apache-2.0
//
// Both parts of the segment as each process sees them: references to where they are mapped. Layout itself is
// not in shared memory. A member is written by the plane whose part contains it (dataplane/segment/parts.h)
// and is read-only in any other process. Any thread may read it.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "dataplane/segment/parts.h"

namespace sluice::segment {

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
        ingress(data.ingress) {}

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
  OfData<IngressArea> ingress;
};

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
