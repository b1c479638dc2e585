// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/exports.h"

#include <algorithm>
#include <cstring>

#include "dataplane/process/settings.h"

namespace sluice::process {
namespace {

constexpr std::size_t kPadBytes = 4096;  ///< behind the zeros, for XDR round-up
constexpr std::uint64_t kPublishIntervalNs = 200'000'000;

}  // namespace

Exports::Exports(const segment::ConfigBlock& config, Core& owner, segment::Layout& layout,
                 service::memory::FileSystem::Clock wall_clock)
    : layout_(layout),
      owner_(owner),
      data_(owner.device->allocate_memory(export_bytes(config))),
      zeros_(owner.device->allocate_memory(service::memory::kLargeBytes + kPadBytes)),
      memory_(data_, zeros_, memory_config(config), wall_clock) {
  for (auto& entry : layout.exports) entry.write({});
  // The NFSACL service gives the access control lists of the same files.
  if (serves_memory(config)) served_ = {&memory_, &memory_.acl_service()};
  for (service::Service* served : served_) owner.engine.add_service(*served);
  owner.reactor.add_control_task(*this);
}

void Exports::lend_to(Core& borrower) {
  std::vector<service::Handover::KeyPair> keys;
  for (const rdma::MemoryRegion& region : {data_, zeros_})
    keys.push_back({region.lkey, borrower.device->register_memory(region.bytes).lkey});
  handovers_.push_back(
      std::make_unique<service::Handover>(std::move(keys), borrower.engine.connection_count()));
  service::Handover& handover = *handovers_.back();
  for (service::Service* real : served_) {
    borrowed_.push_back(std::make_unique<service::BorrowedService>(handover, *real));
    borrower.engine.add_service(*borrowed_.back());
  }
  borrower.reactor.borrow_from(handover);
  owner_.reactor.lend_to(handover);
}

void Exports::on_control_pass(std::uint64_t now_ns) noexcept {
  if (ExportUpdate::List* exports = update_.take()) {
    memory_.exchange_exports(*exports);
    published_ns_ = 0;
    update_.give_back(*exports);
  }
  publish(now_ns);
}

void Exports::publish(std::uint64_t now_ns) noexcept {
  if (now_ns - published_ns_ < kPublishIntervalNs) return;
  published_ns_ = now_ns;
  for (std::uint32_t i = 0; i < segment::kMaxExports; ++i) {
    if (i < memory_.exports().size() && memory_.exports()[i].in_use) {
      layout_.exports[i].write(info(i));
    } else if (const auto shown = layout_.exports[i].read(); !shown || shown->in_use != 0) {
      layout_.exports[i].write({});
    }
  }
}

segment::ExportInfo Exports::info(std::uint32_t number) noexcept {
  const service::memory::ExportOptions& options = memory_.exports()[number];
  const service::memory::ExportUse& use = memory_.file_system().use(number);
  const service::memory::ExportStatistics& statistics = memory_.statistics(number);
  segment::ExportInfo info{.in_use = 1, .read_only = options.read_only};
  std::strncpy(info.path, options.path.c_str(), sizeof info.path - 1);
  const auto handle = memory_.root_handle(number);
  info.root_handle_bytes = handle.size();
  std::copy(handle.begin(), handle.end(), info.root_handle);
  info.quota_bytes = use.quota_bytes;
  info.used_bytes = use.used_bytes;
  info.files = use.files;
  info.calls = statistics.calls;
  info.errors = statistics.errors;
  info.read_bytes = statistics.read_bytes;
  info.written_bytes = statistics.written_bytes;
  for (std::size_t p = 0; p < statistics.procedures.size(); ++p) {
    info.procedure_calls[p] = statistics.procedures[p].calls;
    info.procedure_errors[p] = statistics.procedures[p].errors;
  }
  return info;
}

}  // namespace sluice::process
