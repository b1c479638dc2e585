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
  static std::unique_ptr<Mesh> meshes[2];
  static int runs = 0;
  if (++runs % kRunsOfAMesh == 0)
    for (auto& mesh : meshes) mesh.reset();
  if (size == 0) return 0;
  const bool handed_over = data[0] % 2 != 0;
  std::unique_ptr<Mesh>& mesh = meshes[data[0] % 2];
  if (!mesh) mesh = std::make_unique<Mesh>(handed_over);
  const std::string complaint = run_steps(*mesh, {data + 1, size - 1});
  if (complaint.empty()) return 0;
  std::fprintf(stderr, "%s\n", complaint.c_str());
  std::abort();
}
