// SPDX-License-Identifier: Apache-2.0
//
// A registry of services for upstreams without an engine. It has room for every service.
#pragma once

#include "dataplane/service/api/service.h"

namespace sluice {

class OpenRegistry final : public service::ServiceRegistry {
 public:
  void add_unoffered(service::Service& /*service*/) override {}
  bool offer(service::Service& /*service*/, std::uint32_t /*port*/) noexcept override { return true; }
  void withdraw(const service::Service& /*service*/) noexcept override {}
};

}  // namespace sluice
