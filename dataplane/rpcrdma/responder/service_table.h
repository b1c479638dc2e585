// SPDX-License-Identifier: Apache-2.0
//
// Services of one engine, by program, version and, where there are several, the port that clients connect to.
// Confined to one reactor.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/rpc/message.h"
#include "dataplane/segment/calls.h"
#include "dataplane/service/api/service.h"
#include "dataplane/service/api/service_ports.h"

namespace sluice::rpcrdma {

class ServiceTable final : public service::ServicePorts {
 public:
  /// Maximum number of services; larger than the routes of all upstreams of a data plane.
  static constexpr std::uint32_t kMaxServices = 160;

  /// Entry of a service, found by program, version and port.
  struct Entry {
    std::uint32_t program = 0;
    std::uint32_t version = 0;
    std::uint32_t port = 0;
    std::uint16_t first_procedure = segment::kOtherProcedure;  ///< index in the call table
    std::uint32_t procedures = 0;                              ///< number of procedures in the call table
    const service::Binding* binding = nullptr;
    service::Service* service = nullptr;

    /// Returns the index of a procedure in the call table.
    std::uint16_t place_of(std::uint32_t procedure) const noexcept {
      return procedure < procedures ? static_cast<std::uint16_t>(first_procedure + procedure)
                                    : segment::kOtherProcedure;
    }
  };

  /// Adds a service at setup. Its binding must not change afterwards. `port` is the
  /// ConnectionConfig::services_at of its connections, or service::kNoPort. Throws SetupError if there are
  /// already kMaxServices.
  void add(service::Service& service, std::uint32_t port);
  /// Changes the port of a service. Linear in the number of services.
  void move(const service::Service& service, std::uint32_t port) noexcept override;
  /// Assigns the procedures of all services to entries of the call table. Called at setup, after all services
  /// have been added.
  void describe(segment::CallTable& table);
  /// Returns the entry for a program and version at a port, or null if there is none.
  const Entry* find(std::uint32_t program, std::uint32_t version, std::uint16_t port) const noexcept {
    for (const Entry& entry : entries())
      if (entry.program == program && entry.version == version && entry.port == port) return &entry;
    return nullptr;
  }
  /// Returns the supported versions of a program at a port, or nothing if it is not served there.
  std::optional<rpc::VersionRange> versions_of(std::uint32_t program, std::uint16_t port) const noexcept;
  const std::vector<service::Service*>& all() const noexcept { return services_; }

 private:
  std::span<const Entry> entries() const noexcept { return std::span(entries_).first(count_); }

  std::uint32_t count_ = 0;
  /// Stored next to the count because most calls find their entry in that cache line.
  std::array<Entry, kMaxServices> entries_;
  std::vector<service::Service*> services_;
};

}  // namespace sluice::rpcrdma
