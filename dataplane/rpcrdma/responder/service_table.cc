// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/responder/service_table.h"

#include <cstring>
#include <string>
#include <string_view>

#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::rpcrdma {

void ServiceTable::add(service::Service& service, std::uint32_t port) {
  const service::Binding& binding = service.binding();
  if (count_ == kMaxServices)
    throw SetupError("More than " + std::to_string(kMaxServices) +
                     " programs and versions to serve: configure fewer upstreams or services.");
  if (!has_element(services_, &service)) services_.push_back(&service);
  entries_[count_++] = {.program = binding.program,
                        .version = binding.version,
                        .port = port,
                        .binding = &binding,
                        .service = &service};
}

void ServiceTable::move(const service::Service& service, std::uint32_t port) noexcept {
  for (std::uint32_t i = 0; i < count_; ++i)
    if (entries_[i].service == &service) entries_[i].port = port;
}

std::optional<rpc::VersionRange> ServiceTable::versions_of(std::uint32_t program,
                                                           std::uint16_t port) const noexcept {
  std::optional<rpc::VersionRange> versions;
  for (const Entry& entry : entries()) {
    if (entry.program != program || entry.port != port) continue;
    if (!versions) versions = rpc::VersionRange{entry.version, entry.version};
    versions->low = smaller_of(versions->low, entry.version);
    versions->high = larger_of(versions->high, entry.version);
  }
  return versions;
}

void ServiceTable::describe(segment::CallTable& table) {
  const auto name = [](auto& to, std::string_view from) {
    std::memset(to, 0, sizeof to);
    std::memcpy(to, from.data(), smaller_of(from.size(), sizeof to - 1));
  };
  std::uint16_t next = segment::kOtherProcedure;
  name(table.info[next].program_name, "other");
  name(table.info[next++].procedure_name, "other");
  for (Entry& entry : std::span(entries_).first(count_)) {
    const service::Binding& binding = *entry.binding;
    const Entry* same = entries_.data();
    while (same->program != entry.program || same->version != entry.version) ++same;
    if (same != &entry) {  // at another port: its calls are counted with those
      entry.first_procedure = same->first_procedure;
      entry.procedures = same->procedures;
      continue;
    }
    if (next + binding.procedure_names.size() > table.info.size()) continue;
    entry.first_procedure = next;
    entry.procedures = static_cast<std::uint32_t>(binding.procedure_names.size());
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
