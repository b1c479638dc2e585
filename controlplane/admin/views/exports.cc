// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/exports.h"
#include "dataplane/segment/checked.h"

#include <algorithm>
#include <cstdint>

namespace sluice::admin {
namespace {

constexpr std::uint32_t kNfsProgram = 100003;

Json hosts_of(const segment::ExportConfig& entry) {
  Json hosts = Json::array();
  for (std::uint32_t i = 0; i < std::min(entry.host_count, segment::kMaxExportHosts); ++i)
    hosts.push_back(entry.hosts[i].view());
  return hosts;
}

}  // namespace

Json exports(const segment::Layout& layout) {
  Json list = Json::array();
  const auto config = layout.config.read_copy();
  for (std::size_t i = 0; i < layout.exports.size(); ++i) {
    const auto info = segment::checked(layout.exports[i]);
    if (!info || info->in_use == 0) continue;
    list.push_back({{"path", info->path},
                    {"read_only", info->read_only != 0},
                    {"used_bytes", info->used_bytes},
                    {"quota_bytes", info->quota_bytes},
                    {"files", info->files},
                    {"calls", info->calls},
                    {"errors", info->errors},
                    {"read_bytes", info->read_bytes},
                    {"written_bytes", info->written_bytes},
                    {"hosts", config ? hosts_of(config->exports[i]) : Json::array()}});
  }
  return list;
}

Json export_statistics(const segment::Layout& layout, const std::string& path) {
  Json list = Json::array();
  for (const auto& entry : layout.exports) {
    const auto info = segment::checked(entry);
    if (!info || info->in_use == 0 || (!path.empty() && path != info->path)) continue;
    for (const segment::ProcedureInfo& shared : layout.reactors[0].calls.info) {
      const segment::ProcedureInfo procedure = segment::checked(shared);
      if (procedure.program != kNfsProgram || procedure.procedure >= segment::kMaxNfsProcedures ||
          info->procedure_calls[procedure.procedure] == 0)
        continue;
      list.push_back({{"path", info->path},
                      {"procedure", procedure.procedure_name},
                      {"calls", info->procedure_calls[procedure.procedure]},
                      {"errors", info->procedure_errors[procedure.procedure]}});
    }
  }
  return list;
}

}  // namespace sluice::admin
