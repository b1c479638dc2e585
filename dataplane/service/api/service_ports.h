// SPDX-License-Identifier: Apache-2.0
//
// Where clients find services: at the port that they connect to.
#pragma once

#include <cstdint>

namespace sluice::service {

class Service;

/// Nobody connects there: for a service whose port comes later.
inline constexpr std::uint32_t kNoPort = 0x10000;

class ServicePorts {
 public:
  /// From now on the service is found at `port`, as ConnectionConfig::services_at has it, or nowhere with kNoPort. The
  /// reactor that serves it.
  virtual void move(const Service& service, std::uint32_t port) noexcept = 0;

 protected:
  ~ServicePorts() = default;
};

}  // namespace sluice::service
