// SPDX-License-Identifier: Apache-2.0
//
// All kinds of events, each with the types of its fields. A released name keeps its meaning. Value types; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "controlplane/events/journal.h"

namespace sluice::events {

// Each kind has kKind and `each(visit)`, which calls `visit(name, value, meaning)` for every field.

struct ConnectionUp {
  static constexpr Kind kKind{"connection_up", "A connection is up", Severity::Info, Cause::Peers};
  std::uint32_t reactor = 0;
  std::uint32_t connection = 0;
  std::string peer{};
  bool outgoing = false;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("reactor", reactor, "reactor that serves it");
    visit("connection", connection, "its number there");
    visit("peer", peer, "the peer's address");
    visit("outgoing", outgoing, "whether Sluice has established it");
  }
};

struct ConnectionDown {
  static constexpr Kind kKind{"connection_down", "A connection has ended", Severity::Info, Cause::Peers};
  std::uint32_t reactor = 0;
  std::uint32_t connection = 0;
  std::string peer{};
  bool outgoing = false;
  std::string reason{};
  bool was_up = false;
  double age_s = 0;
  std::string work_status{};
  std::uint32_t vendor_error = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("reactor", reactor, "reactor that served it");
    visit("connection", connection, "its number there, which another connection may have now");
    visit("peer", peer, "the peer's address");
    visit("outgoing", outgoing, "whether Sluice had established it");
    visit("reason", reason, "reason for the end, reported by the reactor; unknown if the report was lost");
    visit("was_up", was_up, "whether it was open before it ended");
    visit("age_s", age_s, "seconds since it was established");
    visit("work_status", work_status, "status of the work request that failed; empty if none did");
    visit("vendor_error", vendor_error, "the RDMA device's own number of that error; 0 if it has none");
  }
};

struct ConnectionRefused {
  static constexpr Kind kKind{"connection_refused", "A connection request was refused", Severity::Warning,
                              Cause::Peers};
  std::string peer{};
  std::string reason{};
  std::string detail{};
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("peer", peer, "the address of the requester");
    visit("reason", reason,
          "the limit or the defect for which it was refused, a name of connection_requests in status");
    visit("detail", detail, "the values that were requested and accepted, or the remedy; may be empty");
  }
};

struct ServerRefused {
  static constexpr Kind kKind{"server_refused", "A connection to a server cannot be established",
                              Severity::Warning, Cause::Ourselves};
  std::string peer{};
  std::string reason{};
  std::string detail{};
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("peer", peer, "the server's address");
    visit("reason", reason, "the reason given by connection management");
    visit("detail", detail, "the values that were requested and accepted; may be empty");
  }
};

struct HostAuthenticated {
  static constexpr Kind kKind{"host_authenticated", "A host has authenticated itself", Severity::Info,
                              Cause::Peers};
  std::uint32_t reactor = 0;
  std::uint32_t connection = 0;
  std::string host{};
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("reactor", reactor, "reactor that serves its connection");
    visit("connection", connection, "the connection's number there");
    visit("host", host, "the host's name");
  }
};

struct HostRefused {
  static constexpr Kind kKind{"host_refused", "A peer has not authenticated itself", Severity::Warning,
                              Cause::Peers};
  std::uint32_t reactor = 0;
  std::uint32_t connection = 0;
  std::string peer{};
  std::string reason{};
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("reactor", reactor, "reactor that serves its connection");
    visit("connection", connection, "the connection's number there");
    visit("peer", peer, "the peer's address");
    visit("reason", reason, "failed if it showed no known key; overdue if it was silent too long");
  }
};

struct MountDenied {
  static constexpr Kind kKind{"mount_denied", "A MOUNT request was denied", Severity::Warning, Cause::Peers};
  std::string peer{};
  std::string path{};
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("peer", peer, "the client's address");
    visit("path", path, "the requested path");
  }
};

struct UpstreamLost {
  static constexpr Kind kKind{"upstream_lost", "An upstream cannot be reached", Severity::Error,
                              Cause::Ourselves};
  std::string upstream{};
  std::uint64_t waiting = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("upstream", upstream, "its name");
    visit("waiting", waiting, "calls that wait for it");
  }
};

struct OperationRefused {
  static constexpr Kind kKind{"operation_refused",
                              "A gateway has refused an operation of NFS 4 that it does not know",
                              Severity::Warning, Cause::Peers};
  std::string upstream{};
  std::uint32_t operation = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("upstream", upstream, "the upstream's name; \"reverse\" for the reverse gateway");
    visit("operation", operation, "number of the operation");
  }
};

struct UpstreamFound {
  static constexpr Kind kKind{"upstream_found", "An upstream is reached", Severity::Info, Cause::Ourselves};
  std::string upstream{};
  double lost_s = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("upstream", upstream, "its name");
    visit("lost_s", lost_s, "seconds since it was lost; 0 if it was not lost");
  }
};

struct ConfigurationInForce {
  static constexpr Kind kKind{"configuration_in_force", "The data plane has applied a configuration",
                              Severity::Info, Cause::Ourselves};
  std::uint64_t generation = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("generation", generation, "number of the configuration");
  }
};

struct ConfigurationRead {
  static constexpr Kind kKind{"configuration_read", "The configuration file was reloaded", Severity::Info,
                              Cause::Ourselves};
  std::uint64_t generation = 0;
  std::string file{};
  std::uint64_t changes = 0;
  std::uint64_t need_restart = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("generation", generation, "number of the new configuration");
    visit("file", file, "the file");
    visit("changes", changes, "number of changed keys that take effect");
    visit("need_restart", need_restart, "number of changed keys that require a restart");
  }
};

struct ConfigurationRefused {
  static constexpr Kind kKind{"configuration_refused",
                              "The configuration was not reloaded, and the previous one stays in force",
                              Severity::Error, Cause::Ourselves};
  std::string problem{};
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("problem", problem, "its first defects");
  }
};

struct ExportChanged {
  static constexpr Kind kKind{"export_changed", "An administrator has changed an export", Severity::Info,
                              Cause::Ourselves};
  std::string path{};
  std::string change{};
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("path", path, "the export's path");
    visit("change", change, "set or removed");
  }
};

struct Takeover {
  static constexpr Kind kKind{"takeover", "A control plane is up", Severity::Info, Cause::Ourselves};
  std::string segment{};
  std::uint64_t process = 0;
  std::uint64_t connections = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("segment", segment, "the segment that it owns");
    visit("process", process, "its process");
    visit("connections", connections, "connections that it has taken over");
  }
};

struct TakenOver {
  static constexpr Kind kKind{"taken_over", "Another control plane has taken over, and this one exits",
                              Severity::Error, Cause::Ourselves};
  std::uint64_t process = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("process", process, "the other's process");
  }
};

struct DataPlaneFound {
  static constexpr Kind kKind{"data_plane_found", "The data plane is up", Severity::Info, Cause::Ourselves};
  std::uint64_t process = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("process", process, "its process");
  }
};

struct DataPlaneLost {
  static constexpr Kind kKind{"data_plane_lost", "The data plane is lost; start sluice-dataplane again",
                              Severity::Error, Cause::Ourselves};
  std::string reason{};
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("reason", reason, "ended if its process has exited; silent if it sends no heartbeats");
  }
};

struct DeviceDown {
  static constexpr Kind kKind{"device_down", "An RDMA device has lost its link, was removed, or failed",
                              Severity::Error, Cause::Ourselves};
  std::uint32_t reactor = 0;
  std::string reason{};
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("reactor", reactor, "reactor that polls it; with softroce the first of the reactors that share it");
    visit(
        "reason", reason,
        "no_link if it has no carrier; gone if its interface or card was removed or reset; broken if Sluice "
        "closes it because of an error");
  }
};

struct DeviceUp {
  static constexpr Kind kKind{"device_up", "An RDMA device is up again", Severity::Info, Cause::Ourselves};
  std::uint32_t reactor = 0;
  bool reopened = false;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("reactor", reactor, "reactor that polls it; with softroce the first of the reactors that share it");
    visit(
        "reopened", reopened,
        "whether it was opened again because its interface or card had been removed, or because of an error");
  }
};

struct DeviceChanged {
  static constexpr Kind kKind{"device_changed", "The address or the MTU of an RDMA device has changed",
                              Severity::Warning, Cause::Ourselves};
  std::uint32_t reactor = 0;
  std::string what{};
  std::uint64_t path_mtu = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("reactor", reactor, "reactor that polls it; with softroce the first of the reactors that share it");
    visit("what", what, "mac_address or mtu");
    visit("path_mtu", path_mtu, "largest path MTU of new connections, in bytes");
  }
};

struct DrainBegun {
  static constexpr Kind kKind{"drain_begun", "A drain has begun, and new connections are refused",
                              Severity::Info, Cause::Ourselves};
  std::uint64_t connections = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("connections", connections, "connections at that time");
  }
};

struct DrainEnded {
  static constexpr Kind kKind{"drain_ended", "The drain has ended", Severity::Info, Cause::Ourselves};
  template <typename Visit>
  void each(Visit&&) const {}
};

struct EventsSuppressed {
  static constexpr Kind kKind{"events_suppressed",
                              "Events of one kind were not recorded because their rate was too high",
                              Severity::Warning, Cause::Ourselves};
  std::string event{};
  std::uint64_t count = 0;
  template <typename Visit>
  void each(Visit&& visit) const {
    visit("event", event, "the name of their kind");
    visit("count", count, "the number of events");
  }
};

using AllKinds =
    std::tuple<ConnectionUp, ConnectionDown, ConnectionRefused, ServerRefused, HostAuthenticated, HostRefused,
               MountDenied, UpstreamLost, UpstreamFound, OperationRefused, ConfigurationInForce,
               ConfigurationRead, ConfigurationRefused, ExportChanged, Takeover, TakenOver, DataPlaneFound,
               DataPlaneLost, DeviceDown, DeviceUp, DeviceChanged, DrainBegun, DrainEnded, EventsSuppressed>;

}  // namespace sluice::events
