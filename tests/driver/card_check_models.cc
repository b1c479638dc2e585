// SPDX-License-Identifier: Apache-2.0
//
// The program sluice-card-check over the stub of verbs_stub.h, for card_check_test.py. The environment
// selects the provider and a fault:
//   CARD_MODEL  name of a model, see verbs_models.h
//   CARD_GIDS   number of GIDs of the port
//   CARD_FAULT  see kFaults
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/driver/verbs_stub.h"

int card_check_main(int argc, char** argv);

namespace sluice::rdma::conformance {
namespace {

struct Fault {
  std::string_view name;
  void (*begin)(VerbsStub& stub);
};

constexpr Fault kFaults[] = {
    {"no_permission", [](VerbsStub& stub) { stub.refuse_open(EACCES); }},
    {"no_device", [](VerbsStub& stub) { stub.set_devices(0); }},
    {"iwarp", [](VerbsStub& stub) { stub.set_iwarp(true); }},
    {"null_poll", [](VerbsStub& stub) { stub.clear_function(VerbsStub::Function::Poll); }},
    {"null_query", [](VerbsStub& stub) { stub.clear_function(VerbsStub::Function::Query); }},
    {"no_sysfs", [](VerbsStub& stub) { stub.hide_sysfs(true); }},
    {"no_queue_pairs", [](VerbsStub& stub) { stub.refuse_queue_pairs(true); }},
};

std::string_view setting(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool select_model(VerbsStub& stub) {
  for (const Provider& provider : kProviders)
    if (provider.name == setting("CARD_MODEL")) return stub.select(provider), true;
  return false;
}

bool begin_fault(VerbsStub& stub) {
  for (const Fault& fault : kFaults)
    if (fault.name == setting("CARD_FAULT")) return fault.begin(stub), true;
  return setting("CARD_FAULT").empty();
}

}  // namespace
}  // namespace sluice::rdma::conformance

int main(int argc, char** argv) {
  using namespace sluice::rdma::conformance;
  VerbsStub& stub = VerbsStub::get();
  if (!select_model(stub) || !begin_fault(stub)) {
    std::fputs("CARD_MODEL or CARD_FAULT has an unknown value.\n", stderr);
    return 3;
  }
  if (!setting("CARD_GIDS").empty()) stub.set_gids(std::strtoul(setting("CARD_GIDS").data(), nullptr, 10), 0);
  return card_check_main(argc, argv);
}
