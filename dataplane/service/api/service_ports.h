// SPDX-License-Identifier: Apache-2.0
//
// Ports at which clients find services.
#pragma once

#include <cstdint>

namespace sluice::service {

class Service;

/// Port of a service that has no port yet.
inline constexpr std::uint32_t kNoPort = 0x10000;

class ServicePorts {
 public:
  /// Makes the service available at `port`, compared with ConnectionConfig::services_at, or nowhere with
  /// kNoPort. Called on the reactor that serves it.
  virtual void move(const Service& service, std::uint32_t port) noexcept = 0;

 protected:
  ~ServicePorts() = default;
};

}  // namespace sluice::service
