// SPDX-License-Identifier: Apache-2.0
//
// Shapes of all types in the shared segment: hashes of the memory layout of types, computed by the compiler
// from names, offsets and sizes of members and from names of enumerators. Two releases whose hashes of a type
// are equal can share memory of that type. Constants only.
//
// SLUICE_SHAPE(type, members...) describes a structure. It does not compile if a member is missing, unless
// the member is hidden in padding at the end.
#pragma once

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/host_name.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/base/spsc_ring.h"
#include "dataplane/segment/histogram.h"
#include "dataplane/segment/layout.h"

namespace sluice::segment::shape {

using Hash = std::uint64_t;
inline constexpr Hash kBegin = 0xcbf29ce484222325;  // FNV-1a

constexpr Hash mix(Hash hash, std::string_view text) {
  for (const char character : text) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3;
  return hash;
}
constexpr Hash mix(Hash hash, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) hash = (hash ^ (value >> (8 * i) & 0xff)) * 0x100000001b3;
  return hash;
}
constexpr Hash named(std::string_view name, std::uint64_t a, std::uint64_t b = 0) {
  return mix(mix(mix(kBegin, name), a), b);
}

/// Shape of a type. Types without a specialization have no definition and do not compile.
template <typename T>
struct Of;
template <typename T>
inline constexpr Hash of = Of<T>::value;

template <typename T>
requires std::integral<T> || std::floating_point<T>
struct Of<T> {
  static constexpr Hash value = named(std::floating_point<T>                          ? "float"
                                      : std::is_signed_v<T> && !std::same_as<T, char> ? "int"
                                                                                      : "unsigned",
                                      sizeof(T));
};
template <>
struct Of<std::byte> {
  static constexpr Hash value = named("byte", 1);
};

/// Returns the enumerator's name; empty if no enumerator has this value.
template <auto Value>
constexpr std::string_view enumerator() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("Value = ") + 8);
  text = text.substr(0, text.find_first_of(";]"));
  if (text.find('(') != std::string_view::npos) return {};
  text.remove_prefix(text.rfind(':') + 1);
  return text[0] >= '0' && text[0] <= '9' ? std::string_view() : text;
}

template <typename T>
requires std::is_enum_v<T>
struct Of<T> {
  /// Number of values that are hashed. Enumerators with larger values do not count.
  static constexpr std::size_t kMost = 64;
  template <std::size_t... I>
  static constexpr Hash all(std::index_sequence<I...>) {
    Hash hash = named("enum", sizeof(T));
    ((hash = mix(mix(hash, enumerator<static_cast<T>(I)>()), I)), ...);
    return hash;
  }
  static constexpr Hash value = all(std::make_index_sequence<kMost>());
};

template <typename T, std::size_t N>
struct Of<std::array<T, N>> {
  static constexpr Hash value = named("array", of<T>, N);
};
template <typename T, std::size_t N>
struct Of<T[N]> {
  static constexpr Hash value = named("array", of<T>, N);
};
template <typename T>
struct Of<std::atomic<T>> {
  static_assert(sizeof(std::atomic<T>) == sizeof(T));
  static constexpr Hash value = of<T>;
};
template <typename T>
struct Of<SeqLock<T>> {
  static constexpr Hash value = named("SeqLock", of<T>, sizeof(SeqLock<T>));
};
template <typename T>
struct Of<TwoCopies<T>> {
  static constexpr Hash value = named("TwoCopies", of<T>, sizeof(TwoCopies<T>));
};
template <>
struct Of<Histogram> {
  static constexpr Hash value = named("Histogram", Histogram::kSubBits, sizeof(Histogram));
};
template <>
struct Of<LastValue> {
  static constexpr Hash value = named("LastValue", sizeof(LastValue));
};
template <>
struct Of<HostName> {
  static constexpr Hash value = named("HostName", sizeof(HostName));
};

struct Member {
  std::string_view name;
  std::size_t offset;
  std::size_t bytes;
  std::size_t alignment;
  Hash type;
};

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

/// Returns whether each member begins where the previous one ends, rounded up to its alignment or to that of
/// a cache line.
template <std::size_t N>
constexpr bool is_complete(const Member (&members)[N], std::size_t bytes, std::size_t alignment) {
  std::size_t end = 0;
  for (const Member& member : members) {
    if (member.offset != round_up(end, member.alignment) && member.offset != round_up(end, kCacheLine))
      return false;
    end = member.offset + member.bytes;
  }
  return round_up(end, alignment) == bytes;
}

template <std::size_t N>
constexpr Hash of_members(const Member (&members)[N], std::size_t bytes) {
  Hash hash = named("struct", bytes);
  for (const Member& member : members)
    hash = mix(mix(mix(mix(hash, member.name), member.offset), member.bytes), member.type);
  return hash;
}

#define SLUICE_SHAPE_AGAIN ()
#define SLUICE_SHAPE_1(...) SLUICE_SHAPE_2(SLUICE_SHAPE_2(SLUICE_SHAPE_2(SLUICE_SHAPE_2(__VA_ARGS__))))
#define SLUICE_SHAPE_2(...) SLUICE_SHAPE_3(SLUICE_SHAPE_3(SLUICE_SHAPE_3(SLUICE_SHAPE_3(__VA_ARGS__))))
#define SLUICE_SHAPE_3(...) SLUICE_SHAPE_4(SLUICE_SHAPE_4(SLUICE_SHAPE_4(SLUICE_SHAPE_4(__VA_ARGS__))))
#define SLUICE_SHAPE_4(...) __VA_ARGS__
#define SLUICE_SHAPE_MEMBERS(...) __VA_OPT__(SLUICE_SHAPE_1(SLUICE_SHAPE_MEMBER(__VA_ARGS__)))
#define SLUICE_SHAPE_MEMBER(member, ...)                                                                    \
  {#member, offsetof(T, member), sizeof(T::member), alignof(decltype(T::member)), of<decltype(T::member)>}, \
      __VA_OPT__(SLUICE_SHAPE_MORE SLUICE_SHAPE_AGAIN(__VA_ARGS__))
#define SLUICE_SHAPE_MORE() SLUICE_SHAPE_MEMBER

#define SLUICE_SHAPE(type, ...)                                                                 \
  template <>                                                                                   \
  struct Of<type> {                                                                             \
    using T = type;                                                                             \
    static constexpr Member kMembers[] = {SLUICE_SHAPE_MEMBERS(__VA_ARGS__)};                   \
    static_assert(is_complete(kMembers, sizeof(T), alignof(T)), #type ": a member is missing"); \
    static constexpr Hash value = of_members(kMembers, sizeof(T));                              \
  };

template <typename T, std::uint32_t Slots>
struct Of<RingOfProducer<T, Slots>> {
  static constexpr Hash value = named("RingOfProducer", of<T>, sizeof(RingOfProducer<T, Slots>));
};
SLUICE_SHAPE(RingOfConsumer, head)

SLUICE_SHAPE(PeerAddress, bytes, zone)
SLUICE_SHAPE(AllowedPrefix, address, prefix_bits)
SLUICE_SHAPE(ExportConfig, in_use, path, read_only, root_squash, all_squash, anonuid, anongid, quota_bytes,
             allowed_count, allowed, host_count, hosts)
SLUICE_SHAPE(RouteConfig, program, version)
SLUICE_SHAPE(WithheldConfig, pnfs, referrals)
SLUICE_SHAPE(UpstreamConfig, name, host_count, hosts, transport, port, listen_port, connections,
             call_timeout_s, privileged_port, withheld, mount_port, allowed_count, allowed, route_count,
             routes, handle_tag, prefix, export_count, exports, removed)
SLUICE_SHAPE(UpstreamSlots, count, over_tcp, over_rdma, rdma_connections, memory_exports)
SLUICE_SHAPE(UpstreamPlaces, count, names)
SLUICE_SHAPE(ReverseConfig, in_use, listen_address, listen_port, server, server_port, clients, connections,
             calls, record_buffers, item_buffers, call_timeout_s, withheld, mount_address, mount_port,
             privileged_clients, allowed_count, allowed)
SLUICE_SHAPE(VerbsPort, device, port)
SLUICE_SHAPE(ConfigBlock, generation, reactors, choose_cpus, cpus, numa_nodes, driver, idle, loopback_path,
             loopback_links, loopback_arena_bytes, ethdev, address_count, addresses, verbs_port_count,
             verbs_ports, shared_receives, memory_windows, window_less, pool_segment_bytes, traffic_class,
             service_level, cnp_traffic_class, gateway_count, gateways, vlan, mtu, hardware_queues, hugepages,
             payload_in_place, dpdk_memory_mib, port, class_count, class_names, log_level, max_connections,
             credits, inline_bytes, max_version, max_segments, keep_alive_s, probe_after_s,
             progress_timeout_s, hold_calls, version_1_memory_s, reply_buffer_bytes, call_buffers,
             large_reply_buffers, max_io_mib, reply_chunks_if_needed, memory_bytes, max_files, handle_key,
             upstream_count, upstreams, record_buffers, item_buffers, max_calls, request_cache,
             callback_clients, upstreams_max, rdma_upstreams_max, started_slots, reverse, slow_call_ms,
             exports)

SLUICE_SHAPE(UpstreamAddress, address, answers, failures, host)
SLUICE_SHAPE(UpstreamAddressList, name, port, count, addresses)

SLUICE_SHAPE(rdma::RcAttributes, local, remote, remote_link, remote_qp, send_psn, receive_psn, path_mtu,
             responder_resources, initiator_depth, ack_timeout, retry_count, rnr_retry, service_level,
             traffic_class)
SLUICE_SHAPE(rdma::Datagram, local, remote, remote_link, remote_qp, bytes, data)
SLUICE_SHAPE(Command, type, id, cm_id, connection, queue_pair, services_at, credits, first_grant,
             client_class, receive_inline_bytes, send_inline_bytes, private_data_bytes, private_data,
             attributes, cm_state)
SLUICE_SHAPE(Event, type, id, status, cm_id, connection, incarnation, queue_pair, outgoing, reason,
             work_status, vendor_error, port, peer_pid, peer, local, path_mtu, private_data_bytes,
             private_data)
SLUICE_SHAPE(Punt, datagram)
SLUICE_SHAPE(PropertyPart, connection, incarnation, first_set, total_bytes, offset, bytes, octets)
SLUICE_SHAPE(DesiredStateWords, course, grant)
SLUICE_SHAPE(DesiredStateDetails, parameters, host)
SLUICE_SHAPE(DesiredStatePart, hints, words, details)

SLUICE_SHAPE(PropertyInfo, max_send_bytes, receive_buffer_bytes, max_segment_bytes, max_segments, reverse)
SLUICE_SHAPE(ConnectionInfo, state, cm_id, incarnation, peer_pid, version, peer, client_class,
             receive_inline_bytes, send_inline_bytes, window, peer_window, own_properties, peer_properties,
             heard_properties, held, host, outgoing, since_ns, queue_pair, cm_state)
SLUICE_SHAPE(ConnectionUse, open, client_class, calls, granted, busy, peak_busy, oldest_state, oldest_ns,
             served, served_ns, received_bytes, sent_bytes, held_bytes, followed_course, followed_grant)
SLUICE_SHAPE(ExportInfo, in_use, read_only, path, root_handle_bytes, root_handle, quota_bytes, used_bytes,
             files, calls, errors, read_bytes, written_bytes, procedure_calls, procedure_errors)
SLUICE_SHAPE(PathQuestion, number, export_number, path)
SLUICE_SHAPE(PathAnswer, number, status, handle_bytes, handle)
SLUICE_SHAPE(ReactorInfo, state, cpu, numa_node, connections, started_ns, guid, path_mtu, condition)
SLUICE_SHAPE(CaptureStatus, id, state, packets, bytes, dropped, end, problem)
SLUICE_SHAPE(MemoryInfo, what, reserved_bytes)
SLUICE_SHAPE(PoolUse, buffers, held, waiting)
SLUICE_SHAPE(ProcedureInfo, program, version, procedure, program_name, procedure_name)
SLUICE_SHAPE(ProcedureUse, calls, latency, time_ns)
SLUICE_SHAPE(CallTable, procedures, info, use)
SLUICE_SHAPE(TraceRecord, connection, xid, program, version, procedure, status, begun_ns, total_ns,
             call_bytes, reply_bytes, state_ns)
SLUICE_SHAPE(TraceRing, written, records)
SLUICE_SHAPE(SlowCall, number, ended_ns, upstream_ns, peer, client_class, replied, call)
SLUICE_SHAPE(SlowCallRing, written, records)
SLUICE_SHAPE(UpstreamArea, counters, connections, connecting, outstanding, waiting, credit_limit,
             uring_features, address, pools, unknown_operation, upstream_ns, gateway_ns)
SLUICE_SHAPE(ReverseArea, counters, clients, connected, outstanding, unknown_operation, server_ns)

SLUICE_SHAPE(CounterNames, names)
SLUICE_SHAPE(ProcessUse, cpu_ns, resident_bytes, virtual_bytes, open_descriptors, max_descriptors, started_ns,
             log_lines_lost)
SLUICE_SHAPE(ServedCalls, calls, time_ns, received_bytes, sent_bytes)
SLUICE_SHAPE(ShownClient, peer, in_use, unused, served)
SLUICE_SHAPE(ClientTable, clients, others)
SLUICE_SHAPE(ControlState, recomputation_ns, longest_stall_ns, recent_stall_ns, draining, reading_epoch)
SLUICE_SHAPE(ReactorControl, commands, events, punt_up, punt_down, properties_up, properties_down, wanted,
             peaks_read)
SLUICE_SHAPE(ReactorData, commands, events, punt_up, punt_down, properties_up, properties_down, hints,
             transport_counters, counters, invariant_failures, device_statistics, slots_in_state, pools, info,
             incarnations, connections, use, calls, trace, upstreams, reverse)

}  // namespace sluice::segment::shape
