// SPDX-License-Identifier: Apache-2.0
//
// Parses the input both as a configuration file and as a file of exports_directory. A text either has
// defects, each reported with its line, or yields a configuration whose every key can be printed, whose
// limits hold, which grants nothing that the text does not state, and which a data plane accepts on a machine
// that the checks accept it for.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "controlplane/config/changes.h"
#include "controlplane/config/keys.h"
#include "controlplane/config/machine.h"
#include "controlplane/config/upstreams.h"
#include "dataplane/gateway/rdma_upstream/relay.h"
#include "dataplane/gateway/tcp_clients/reverse_gateway.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/process/devices.h"
#include "dataplane/process/settings.h"
#include "dataplane/process/start.h"
#include "dataplane/reactor/config.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/checked.h"
#include "dataplane/service/memory/memory_service.h"
#include "pmd/softroce/port_config.h"

using namespace sluice;

namespace {

/// A file of exports adds what it adds as the configuration file.
void read_as_exports(const std::string& text) {
  const config::ExportFile file{.name = "f", .text = text};
  try {
    const config::Config parsed = config::parse("", "main", {&file, 1});
    if (config::describe(parsed) != config::describe(config::parse(text, "f"))) std::abort();
  } catch (const config::ConfigError& error) {
    if (std::string(error.what()).rfind("f:", 0) != 0) std::abort();
  }
}

/// Returns true if the text has the key, or a key of the entry or table of that name. The default of
/// policy.max_credits is the value of transport.credits.
bool states(const config::Config& parsed, const std::string& key) {
  if (key == "policy.max_credits" && parsed.has_key("transport.credits")) return true;
  return parsed.has_key(key) || std::any_of(parsed.named.begin(), parsed.named.end(),
                                            [&](const auto& name) { return name.starts_with(key + '.'); });
}

/// The text has every key whose value is not the default.
void grant(const config::Config& defaults, const config::Config& parsed) {
  const config::Changes changes = config::compare(defaults, parsed);
  for (const auto* const keys : {&changes.live, &changes.restart_control, &changes.restart_both})
    for (const std::string& key : *keys)
      if (!states(parsed, key)) std::abort();
  const segment::ExportConfig usual;
  for (const segment::ExportConfig& entry : parsed.block.exports) {
    const std::string name = "export." + std::string(entry.path) + '.';
    const auto wider = [&](bool is_wider, const char* key) {
      if (entry.in_use != 0 && is_wider && !parsed.has_key(name + key)) std::abort();
    };
    wider(true, "path");
    wider(usual.read_only != 0 && entry.read_only == 0, "read_only");
    wider(usual.root_squash != 0 && entry.root_squash == 0, "root_squash");
    wider(entry.quota_bytes != usual.quota_bytes, "quota_mib");
    wider(entry.allowed_count != usual.allowed_count, "clients");
    wider(entry.host_count != usual.host_count, "hosts");
  }
  try {
    config::check_clients_of_exports(parsed);
  } catch (const config::ConfigError&) {
    return;  // a start refuses exports without clients
  }
  for (const segment::ExportConfig& entry : parsed.block.exports)
    if (entry.in_use != 0 && !parsed.has_key("export." + std::string(entry.path) + ".clients")) std::abort();
}

config::Machine make_machine() {
  constexpr int kProcessors = 4;
  config::Machine machine;
  machine.processors = kProcessors;
  CPU_ZERO(&machine.allowed);
  for (int cpu = 0; cpu < kProcessors; ++cpu) CPU_SET(cpu, &machine.allowed);
  machine.memory.pages_bytes = std::uint64_t{64} << 30;
  machine.mtu_of = [](const std::string&) { return std::optional<std::uint32_t>(1500); };
  machine.has_address = [](const PeerAddress&) { return false; };
  return machine;
}

/// A data plane accepts what the checks accept. It throws SetupError otherwise, which ends the fuzzer.
void start(const config::Config& parsed) {
  static const config::Machine kMachine = make_machine();
  if (!segment::defect_of(parsed.block).empty()) std::abort();
  const config::Findings found = config::judge(parsed, kMachine);
  if (!found.defects.empty() || !found.notes.empty()) return;
  segment::ConfigBlock block = parsed.block;
  process::place_reactors(block, kMachine.allowed);
  if (!process::lacks_of_machine(process::memory_need(block), kMachine.memory).empty()) std::abort();
  if (process::queue_pairs_of_device(block) > rdma::softroce::kMaxQueuePairs) std::abort();
  if (block.reverse.in_use != 0) process::reverse_gateway_config(block);
  process::memory_config(block);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_as_exports({reinterpret_cast<const char*>(data), size});
  static const config::Config kDefaults = config::defaults();
  try {
    const config::Config parsed = config::parse({reinterpret_cast<const char*>(data), size}, "f");
    grant(kDefaults, parsed);
    start(parsed);
    // Applying the same text again removes nothing.
    if (!config::unsaid_removals(parsed, parsed).empty()) std::abort();
    const config::Config live = config::live_part(kDefaults, parsed);
    if (live.classes.empty() || live.classes.size() > segment::kMaxClasses) std::abort();
    for (const auto& client_class : live.classes)
      if (client_class.credits.min_credits < 1 ||
          client_class.credits.min_credits > client_class.credits.max_credits ||
          client_class.credits.max_credits > live.block.credits)
        std::abort();
    if (parsed.block.credits < 1 || parsed.block.reactors < 1 ||
        parsed.block.reactors > segment::kMaxReactors)
      std::abort();
  } catch (const config::ConfigError& error) {
    if (std::string(error.what()).rfind("f:", 0) != 0) std::abort();
  }
  return 0;
}
