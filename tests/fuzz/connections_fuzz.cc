// SPDX-License-Identifier: Apache-2.0
//
// Several connections between two engines that are requester and responder at once: calls, cancellations,
// losses, reconnects and time in the order of the input. Afterwards everything has to be back.
#include <cstdio>
#include <cstdlib>

#include "tests/conformance/mesh_steps.h"

using namespace sluice::conformance;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A mesh remembers transfers that failed, and versions of servers: it is replaced from time to time.
  constexpr int kRunsOfAMesh = 100;
  static std::unique_ptr<Mesh> mesh;
  static int runs = 0;
  if (!mesh || ++runs == kRunsOfAMesh) {
    runs = 0;
    mesh.reset();
    mesh = std::make_unique<Mesh>();
  }
  const std::string complaint = run_steps(*mesh, {data, size});
  if (complaint.empty()) return 0;
  std::fprintf(stderr, "%s\n", complaint.c_str());
  std::abort();
}
