// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/calls.h"

#include <string>

#include "dataplane/segment/checked.h"

namespace sluice::admin {
namespace {

/// "NFS.GETATTR" where the data plane has a name for it, "100003.3.1" where not.
std::string procedure_name(const segment::CallTable& table, const segment::TraceRecord& record) {
  for (const segment::ProcedureInfo& shared : table.info) {
    const segment::ProcedureInfo info = segment::checked(shared);
    if (info.program != 0 && info.program == record.program && info.version == record.version &&
        info.procedure == record.procedure)
      return std::string(info.program_name) + '.' + info.procedure_name;
  }
  return std::to_string(record.program) + '.' + std::to_string(record.version) + '.' +
         std::to_string(record.procedure);
}

}  // namespace

Json describe_call(const segment::CallTable& table, const segment::TraceRecord& record) {
  Json states = Json::object();
  for (std::size_t i = 1; i < segment::kSlotStateCount; ++i)
    if (record.state_ns[i] > 0)
      states[segment::kSlotStates[i]] = static_cast<double>(record.state_ns[i]) * 1e-3;
  return {
      {"xid", record.xid},
      {"procedure", procedure_name(table, record)},
      {"status", segment::kCallStatuses[static_cast<std::size_t>(record.status) % segment::kCallStatusCount]},
      {"call_bytes", record.call_bytes},
      {"reply_bytes", record.reply_bytes},
      {"total_us", static_cast<double>(record.total_ns) * 1e-3},
      {"states_us", states}};
}

}  // namespace sluice::admin
