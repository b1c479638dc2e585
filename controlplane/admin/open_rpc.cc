// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/open_rpc.h"

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/json_rpc.h"

namespace sluice::admin {
namespace {

constexpr const char* kOpenRpcVersion = "1.2.6";

Json describe(const Declaration& method) {
  Json parameters = Json::array();
  for (const Field& parameter : method.parameters)
    parameters.push_back({{"name", parameter.name},
                          {"required", parameter.by_default.is_null()},
                          {"schema", json_schema(parameter)}});
  Json errors = Json::array();
  for (const std::string& sentence : method.errors)
    errors.push_back({{"code", kMethodFailed}, {"message", sentence}});
  return {{"name", method.name},
          {"summary", method.summary},
          {"paramStructure", "by-name"},
          {"params", parameters},
          {"result", {{"name", "result"}, {"schema", json_schema(method.result)}}},
          {"errors", errors},
          {"x-access", method.needed == Access::Change ? "change" : "read"}};
}

}  // namespace

Json open_rpc(const std::vector<Declaration>& methods, const std::string& version) {
  Json described = Json::array();
  for (const Declaration& method : methods) described.push_back(describe(method));
  return {{"openrpc", kOpenRpcVersion},
          {"info", {{"title", "Sluice administration"}, {"version", version}}},
          {"methods", described}};
}

void add_discovery(Registry& registry, const std::string& version) {
  registry.add(declared("rpc.discover"),
               [&registry, version](const Json&) { return open_rpc(registry.declarations(), version); });
}

}  // namespace sluice::admin
