// SPDX-License-Identifier: Apache-2.0
//
// The services of one engine, by program and version, and by the port that their clients connect to where there are several.
// One reactor.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/rpc/message.h"
#include "dataplane/segment/call_table.h"
#include "dataplane/service/api/service.h"
#include "dataplane/service/api/service_ports.h"

namespace sluice::rpcrdma {

class ServiceTable final : public service::ServicePorts {
 public:
  /// More than all upstreams of a data plane have routes.
  static constexpr std::uint32_t kMaxServices = 160;

  /// A service as calls look for it.
  struct Entry {
    std::uint32_t program = 0;
    std::uint32_t version = 0;
    std::uint32_t port = 0;
    std::uint16_t first_procedure = segment::kOtherProcedure;  ///< its place in the call table
    std::uint32_t procedures = 0;                              ///< that have places there
    const service::Binding* binding = nullptr;
    service::Service* service = nullptr;

    /// In the call table.
    std::uint16_t place_of(std::uint32_t procedure) const noexcept {
      return procedure < procedures ? static_cast<std::uint16_t>(first_procedure + procedure)
                                    : segment::kOtherProcedure;
    }
  };

  /// Setup. The service's binding stays the same from here on. `port`: ConnectionConfig::services_at of those it is for, or
  /// service::kNoPort. Throws SetupError when there are kMaxServices.
  void add(service::Service& service, std::uint32_t port);
  /// Linear in services.
  void move(const service::Service& service, std::uint32_t port) noexcept override;
  /// Setup, when all services are there: gives their procedures places in the call table.
  void describe(segment::CallTable& table);
  /// Null: nobody serves this program in this version there.
  const Entry* find(std::uint32_t program, std::uint32_t version, std::uint16_t port) const noexcept {
    for (const Entry& entry : entries())
      if (entry.program == program && entry.version == version && entry.port == port) return &entry;
    return nullptr;
  }
  /// Nothing: nobody serves the program there.
  std::optional<rpc::VersionRange> versions_of(std::uint32_t program, std::uint16_t port) const noexcept;
  const std::vector<service::Service*>& all() const noexcept { return services_; }

 private:
  std::span<const Entry> entries() const noexcept { return std::span(entries_).first(count_); }

  std::uint32_t count_ = 0;
  /// Beside their number, since most calls find theirs in the same cache line.
  std::array<Entry, kMaxServices> entries_;
  std::vector<service::Service*> services_;
};

}  // namespace sluice::rpcrdma
