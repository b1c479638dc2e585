// SPDX-License-Identifier: Apache-2.0
//
// A configuration file: it has defects, each with its line, or it is one whose every key can be shown and
// whose limits hold.
#include <cstdlib>
#include <string>

#include "controlplane/config/describe.h"

using namespace sluice;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const config::Config kDefaults = config::defaults();
  try {
    const config::Config parsed = config::parse({reinterpret_cast<const char*>(data), size}, "f");
    config::compare(kDefaults, parsed);
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
