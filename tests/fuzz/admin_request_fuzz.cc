// SPDX-License-Identifier: Apache-2.0
//
// One line of the admin socket: the answer is JSON-RPC 2.0, in one line, or nothing.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "controlplane/admin/registry.h"

using namespace sluice;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const admin::Registry registry = [] {
    admin::Registry made;
    made.add("echo", admin::Access::Read, [](const nlohmann::json& parameters) { return parameters; });
    made.add("number", admin::Access::Read,
             [](const nlohmann::json& parameters) { return parameters.value("n", 7u); });
    made.add("change", admin::Access::Change, [](const nlohmann::json&) -> nlohmann::json { std::abort(); });
    return made;
  }();
  const std::string answer =
      registry.answer({reinterpret_cast<const char*>(data), size}, admin::Access::Read);
  if (answer.empty()) return 0;
  const auto parsed = nlohmann::json::parse(answer, nullptr, false);
  if (parsed.is_discarded() || parsed["jsonrpc"] != "2.0" ||
      parsed.contains("result") == parsed.contains("error") || answer.find('\n') != std::string::npos)
    std::abort();
  return 0;
}
