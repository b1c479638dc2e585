// SPDX-License-Identifier: Apache-2.0
//
// The services of one engine, by program and version. One reactor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dataplane/rpc/message.h"
#include "dataplane/segment/call_table.h"
#include "dataplane/service/api/service.h"

namespace sluice::rpcrdma {

struct ServiceLookup {
  service::Service* service = nullptr;
  std::uint16_t first_procedure = segment::kOtherProcedure;  ///< in the call table
  bool program_known = false;
  rpc::VersionRange supported{};
};

class ServiceTable {
 public:
  void add(service::Service& service) { services_.push_back(&service); }
  /// Setup, when all services are there: gives their procedures places in the call table.
  void describe(segment::CallTable& table);
  ServiceLookup find(std::uint32_t program, std::uint32_t version) const noexcept {
    ServiceLookup result;
    for (std::size_t i = 0; i < services_.size(); ++i) {
      const service::Binding& binding = services_[i]->binding();
      if (binding.program != program) continue;
      if (binding.version == version)
        return {services_[i],
                i < first_procedures_.size() ? first_procedures_[i] : segment::kOtherProcedure,
                true,
                {}};
      result.supported.low =
          result.program_known ? std::min(result.supported.low, binding.version) : binding.version;
      result.supported.high = std::max(result.supported.high, binding.version);
      result.program_known = true;
    }
    return result;
  }
  const std::vector<service::Service*>& all() const noexcept { return services_; }

 private:
  std::vector<service::Service*> services_;
  std::vector<std::uint16_t> first_procedures_;  ///< kOtherProcedure where the table had no room
};

}  // namespace sluice::rpcrdma
