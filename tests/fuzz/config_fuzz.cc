// SPDX-License-Identifier: Apache-2.0
//
// Parses the input both as a configuration file and as a file of saved changes. A text either has defects,
// each reported with its line, or yields a configuration whose every key can be printed and whose limits
// hold.
#include <cstdlib>
#include <string>

#include "controlplane/config/changes.h"
#include "controlplane/config/describe.h"

using namespace sluice;

namespace {

/// Saved changes survive being written and read again.
void read_as_saved(const std::string& text) {
  try {
    config::Config once = config::defaults();
    config::add_saved_changes(once, text, "f");
    config::Config again = config::defaults();
    config::add_saved_changes(again, config::to_toml(once.saved), "f");
    if (config::describe(once) != config::describe(again) ||
        config::describe(once.saved) != config::describe(again.saved))
      std::abort();
  } catch (const config::ConfigError& error) {
    if (std::string(error.what()).rfind("f:", 0) != 0) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_as_saved({reinterpret_cast<const char*>(data), size});
  static const config::Config kDefaults = config::defaults();
  try {
    const config::Config parsed = config::parse({reinterpret_cast<const char*>(data), size}, "f");
    config::compare(kDefaults, parsed);
    // Only exports that the text names are exported, and applying the same text again removes nothing.
    for (const segment::ExportConfig& entry : parsed.block.exports)
      if (entry.in_use != 0 && !parsed.has_key("export." + std::string(entry.path) + ".path")) std::abort();
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
