// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/responder/service_table.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace sluice::rpcrdma {

void ServiceTable::describe(segment::CallTable& table) {
  const auto name = [](auto& to, std::string_view from) {
    std::memset(to, 0, sizeof to);
    std::memcpy(to, from.data(), std::min(from.size(), sizeof to - 1));
  };
  std::uint16_t next = segment::kOtherProcedure;
  name(table.info[next].program_name, "other");
  name(table.info[next++].procedure_name, "other");
  first_procedures_.assign(services_.size(), segment::kOtherProcedure);
  for (std::size_t i = 0; i < services_.size(); ++i) {
    const service::Binding& binding = services_[i]->binding();
    if (next + binding.procedure_names.size() > table.info.size()) continue;
    first_procedures_[i] = next;
    for (std::uint32_t procedure = 0; procedure < binding.procedure_names.size(); ++procedure) {
      segment::ProcedureInfo& info = table.info[next++];
      info = {.program = binding.program, .version = binding.version, .procedure = procedure};
      name(info.program_name, binding.name);
      name(info.procedure_name, binding.procedure_names[procedure]);
    }
  }
  table.procedures.store(next, std::memory_order_release);
}

}  // namespace sluice::rpcrdma
