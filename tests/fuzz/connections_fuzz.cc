// SPDX-License-Identifier: Apache-2.0
//
// Opens several connections between two engines, each of which is requester and responder. Calls,
// cancellations, losses, reconnects and the passing of time follow the order of the input. Afterwards every
// resource has to be free again.
#include <cstdio>
#include <cstdlib>

#include "tests/conformance/mesh_steps.h"

using namespace sluice::conformance;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A mesh remembers failed transfers and the versions of servers, so it is replaced from time to time.
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
