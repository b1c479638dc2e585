// SPDX-License-Identifier: Apache-2.0
//
// sluice-reference keys|methods|metrics|schemas: prints a reference page, or the JSON Schemas of the methods.
// The build installs the pages as configuration-keys.md, json-rpc-methods.md and metrics-reference.md.
#include <cstdio>
#include <string>
#include <string_view>

#include "controlplane/admin/registry.h"
#include "controlplane/config/keys.h"
#include "telemetry/schema.h"

int main(int argc, char** argv) {
  const std::string_view page = argc == 2 ? argv[1] : "";
  std::string text;
  if (page == "keys") text = sluice::config::keys_reference();
  if (page == "methods") text = sluice::admin::reference();
  if (page == "schemas") text = sluice::admin::schemas();
  if (page == "metrics") text = sluice::telemetry::reference();
  if (text.empty()) {
    std::fputs("Name one page: sluice-reference keys, methods, metrics or schemas.\n", stderr);
    return 2;
  }
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0 ? 0 : 1;
}
