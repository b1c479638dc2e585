// SPDX-License-Identifier: Apache-2.0
//
// Parses one line of the admin socket. The answer is JSON-RPC 2.0 in one line, or nothing.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "controlplane/admin/registry.h"

using namespace sluice;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const admin::Registry registry = [] {
    admin::Registry made;
    made.add({.name = "echo",
              .needed = admin::Access::Read,
              .parameters = {{.name = "any", .by_default = 1},
                             admin::list("list", "numbers", admin::number("", "")).or_else({1}),
                             admin::map("map", "words", admin::text("", "")).or_else({{"a", "b"}})}},
             [](const Json& parameters) { return parameters; });
    made.add({.name = "number",
              .needed = admin::Access::Read,
              .parameters = {admin::whole32("n", "a number").or_else(7)}},
             [](const Json& parameters) { return parameters.at("n").get<std::uint32_t>(); });
    made.add({.name = "change", .needed = admin::Access::Change}, [](const Json&) -> Json { std::abort(); });
    return made;
  }();
  const std::string answer =
      registry.answer({reinterpret_cast<const char*>(data), size}, admin::Access::Read);
  if (answer.empty()) return 0;
  const auto parsed = Json::try_parse(answer);
  if (!parsed || parsed->at("jsonrpc") != "2.0" || parsed->contains("result") == parsed->contains("error") ||
      answer.find('\n') != std::string::npos)
    std::abort();
  return 0;
}
