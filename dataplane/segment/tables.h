// SPDX-License-Identifier: Apache-2.0
//
// State of the data plane, published for the control plane and tools. Each entry has one writer, its reactor,
// through a SeqLock (base/seqlock.h) or relaxed atomics; any thread or process reads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dataplane/base/host_name.h"
#include "dataplane/base/net_address.h"

#include "dataplane/base/invariant.h"

namespace sluice::segment {

inline constexpr std::uint32_t kMaxReactors = 8;
inline constexpr std::uint32_t kMaxConnections = 16384;  ///< per reactor
inline constexpr std::uint32_t kMaxExports = 32;
inline constexpr std::uint32_t kMaxNfsProcedures = 24;
inline constexpr std::uint32_t kMaxPathBytes = 256;
inline constexpr std::uint32_t kMaxHandleBytes = 64;
inline constexpr std::uint32_t kMaxMemoryEntries = 16;

/// Connection management state stored with each connection, for a control plane that takes over. Opaque to
/// the data plane's reactors.
inline constexpr std::uint32_t kCmStateBytes = 80;

enum class ConnectionState : std::uint32_t { Unused, Opening, Open, Closing };

/// Version 2 transport properties 1 to 5.
struct PropertyInfo {
  std::uint32_t max_send_bytes = 0;
  std::uint32_t receive_buffer_bytes = 0;
  std::uint32_t max_segment_bytes = 0;
  std::uint32_t max_segments = 0;
  std::uint32_t reverse = 0;
};

struct ConnectionInfo {
  ConnectionState state{};
  std::uint32_t cm_id = 0;
  /// Distinguishes a connection from all others in its slot, earlier and later. The reactor counts
  /// incarnations up. Never zero.
  std::uint32_t incarnation = 0;
  std::uint32_t peer_pid = 0;
  std::uint32_t version = 0;  ///< of RPC-over-RDMA
  PeerAddress peer;
  std::uint32_t client_class = 0;
  std::uint32_t receive_inline_bytes = 0;
  std::uint32_t send_inline_bytes = 0;
  std::uint32_t window = 0;            ///< version 2: Receives granted to the peer
  std::uint32_t peer_window = 0;       ///< version 2: Receives granted by the peer
  PropertyInfo own_properties{};       ///< version 2
  PropertyInfo peer_properties{};      ///< version 2
  std::uint32_t heard_properties = 0;  ///< version 2: the peer has sent its properties
  std::uint32_t held = 0;              ///< version 2: calls are held until the peer is authenticated
  HostName host{};                     ///< version 2; empty: not authenticated
  std::uint32_t outgoing = 0;          ///< nonzero: opened by us, to a server
  std::uint64_t since_ns = 0;          ///< wall clock
  std::uint32_t queue_pair = 0;        ///< QPN
  std::array<std::byte, kCmStateBytes> cm_state{};
};

/// Buffer pool that the connections of a reactor share, by purpose and size.
struct SharedPool {
  const char* name;
  const char* size;
};
inline constexpr std::array<SharedPool, 6> kSharedPools = {{{"calls", "small"},
                                                            {"calls", "large"},
                                                            {"replies", "small"},
                                                            {"replies", "large"},
                                                            {"continued", "small"},
                                                            {"continued", "large"}}};

/// Usage of a connection, for credit policy and tools. Independent words; no lock.
struct ConnectionUse {
  static constexpr std::uint32_t kOfClient = 1;
  static constexpr std::uint32_t kToServer = 2;
  std::atomic<std::uint32_t> open;  ///< zero, kOfClient or kToServer
  std::atomic<std::uint32_t> client_class;
  std::atomic<std::uint64_t> calls;      ///< received since the connection was opened
  std::atomic<std::uint32_t> granted;    ///< credits that the next reply grants
  std::atomic<std::uint32_t> busy;       ///< call slots in use
  std::atomic<std::uint32_t> peak_busy;  ///< largest `busy` since the control plane last read it
  /// State of the oldest call in a slot: index in kSlotStates; zero: none.
  std::atomic<std::uint32_t> oldest_state;
  std::atomic<std::uint64_t> oldest_ns;  ///< age of that call in ns
  std::atomic<std::uint64_t> served;     ///< calls that have been replied to since the connection was opened
  std::atomic<std::uint64_t> served_ns;  ///< total time of the calls in `served`
  std::atomic<std::uint64_t> received_bytes;   ///< bytes of messages and our RDMA Reads since it was opened
  std::atomic<std::uint64_t> sent_bytes;       ///< bytes of messages and our RDMA Writes since it was opened
  std::atomic<std::uint64_t> held_bytes;       ///< bytes held in buffers that connections share
  std::atomic<std::uint64_t> followed_course;  ///< word of DesiredStateWords that the reactor applied last
  std::atomic<std::uint64_t> followed_grant;
};

struct ExportInfo {
  std::uint32_t in_use = 0;
  std::uint32_t read_only = 0;
  char path[kMaxPathBytes]{};
  std::uint32_t root_handle_bytes = 0;
  std::byte root_handle[kMaxHandleBytes]{};
  std::uint64_t quota_bytes = 0;  ///< zero: limited only by memory_bytes
  std::uint64_t used_bytes = 0;
  std::uint64_t files = 0;
  std::uint64_t calls = 0;
  std::uint64_t errors = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::array<std::uint64_t, kMaxNfsProcedures> procedure_calls{};
  std::array<std::uint64_t, kMaxNfsProcedures> procedure_errors{};
};

/// Maximum size of a path in MOUNT: MNTPATHLEN (1024), plus room for the terminating zero.
inline constexpr std::uint32_t kMaxMountPathBytes = 1028;

/// Query of the control plane's MOUNT thread for the handle of a directory below the root of an export.
struct PathQuestion {
  std::uint64_t number = 0;  ///< differs between consecutive queries, also across a restart; zero: none
  std::uint32_t export_number = 0;
  char path[kMaxMountPathBytes]{};  ///< as clients name it; starts with the path of the export
};

/// Result of a PathQuestion, written by the reactor that owns the exports.
struct PathAnswer {
  std::uint64_t number = 0;  ///< number of the query
  std::uint32_t status = 0;  ///< nfsstat3
  std::uint32_t handle_bytes = 0;
  std::byte handle[kMaxHandleBytes]{};
};

enum class ReactorState : std::uint32_t { Unused, Starting, Running, Stopped };

/// Condition of a reactor's device (rdma::Condition). All reactors of a softroce port share the condition of
/// the port.
enum class DeviceCondition : std::uint64_t { Up, NoLink, Gone, Broken };

struct ReactorInfo {
  ReactorState state{};
  std::uint32_t cpu = 0;
  std::uint32_t numa_node = 0;
  std::uint32_t connections = 0;
  std::uint64_t started_ns = 0;  ///< wall clock
  std::uint64_t guid = 0;        ///< GUID of the device's port; 0: unknown
  std::uint64_t path_mtu = 0;    ///< largest MTU of the device's port, in bytes; 0: unknown
  DeviceCondition condition{};
};

inline constexpr std::uint32_t kMaxDeviceStatistics = 96;

enum class CaptureState : std::uint32_t { None, Running, Done, Failed };

/// Status of the last packet capture that was requested (segment/channels.h).
struct CaptureStatus {
  std::uint64_t id = 0;
  CaptureState state{};
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;    ///< written
  std::uint64_t dropped = 0;  ///< packets not written because the reader was too slow
  char end[64]{};             ///< Done: reason
  char problem[256]{};        ///< Failed: error message
};

struct MemoryInfo {
  char what[64]{};
  std::uint64_t reserved_bytes = 0;
};

using MemoryTable = std::array<MemoryInfo, kMaxMemoryEntries>;

/// Usage of a shared pool. One writer, its reactor. The words are relaxed atomics that any thread or process
/// may read.
struct PoolUse {
  std::atomic<std::uint32_t> buffers;
  std::atomic<std::uint32_t> held;
  std::atomic<std::uint32_t> waiting;  ///< calls or messages that wait for a buffer

  void publish(std::uint32_t of, std::uint32_t in_use, std::uint32_t waiters) noexcept {
    static_cast<void>(SLUICE_INVARIANT(in_use <= of, pool_balance));
    buffers.store(of, std::memory_order_relaxed);
    held.store(in_use, std::memory_order_relaxed);
    waiting.store(waiters, std::memory_order_relaxed);
  }
};

}  // namespace sluice::segment
