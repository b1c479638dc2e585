// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/mesh_steps.h"

namespace sluice::conformance {
namespace {

constexpr std::size_t kMostSteps = 400;

struct Step {
  std::uint32_t action;
  std::uint32_t leg;
  Mesh::Side side;
  std::uint32_t shape;
  std::uint32_t bytes;
};

Step decode(std::span<const std::uint8_t, kStepBytes> bytes) {
  return {.action = bytes[0],
          .leg = bytes[1] % Mesh::kLegs,
          .side = (bytes[1] >> 2 & 1) != 0 ? Mesh::kServer : Mesh::kClient,
          .shape = static_cast<std::uint32_t>(bytes[1] >> 3),
          .bytes = static_cast<std::uint32_t>(bytes[2] | bytes[3] << 8)};
}

/// Executes one step. Calls and iterations are together as frequent as all other actions.
void run(Mesh& mesh, const Step& step) {
  switch (step.action % 16) {
    case 0:
      return mesh.close(step.leg, step.side);
    case 1:
      return mesh.lose(step.leg, step.side);
    case 2:
      return mesh.cancel(step.leg, step.side, step.bytes);
    case 3:
      return mesh.complete_later(step.side);
    case 4:
      return mesh.set_credits(step.leg, step.bytes % 9);
    case 5:
      return mesh.pass(std::uint64_t{step.bytes} * 1'000'000);
    case 6:
    case 7:
      return mesh.connect(step.leg, 1 + step.bytes % 2);
    case 8:
    case 9:
      return mesh.turn(step.side);
    case 10:
    case 11:
      return mesh.turns(step.bytes % 32);
    default:
      static_cast<void>(
          mesh.submit(step.leg, step.side, static_cast<Shape>(step.shape % kShapes), step.bytes));
  }
}

}  // namespace

std::string run_steps(Mesh& mesh, std::span<const std::uint8_t> bytes) {
  for (std::uint32_t leg = 0; leg < Mesh::kLegs; ++leg) mesh.connect(leg, 1 + leg % 2);
  mesh.turns(20);
  for (std::size_t n = 0; n < kMostSteps && bytes.size() >= kStepBytes; ++n) {
    run(mesh, decode(bytes.first<kStepBytes>()));
    bytes = bytes.subspan(kStepBytes);
  }
  return mesh.finish();
}

}  // namespace sluice::conformance
