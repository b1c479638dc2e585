// SPDX-License-Identifier: Apache-2.0
//
// Example of a service, which deploy/docs/internals/services.md describes. Program 0x20000EC0 version 1:
//   0 NULL  () -> ()
//   1 ECHO  (opaque data<kMaxEchoBytes> [eligible]) -> (the same opaque [eligible])
// Data that comes as a Read chunk is placed in registered memory of the service and returned from there, so
// that it can leave by RDMA Write. All other data is copied. A service belongs to one reactor.
#pragma once

#include <cstdint>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/service/api/service.h"
#include "pmd/device.h"

namespace sluice::examples {

/// Program number from the user-defined range of RFC 5531, section 14.3.
inline constexpr std::uint32_t kEchoProgram = 0x20000EC0;
inline constexpr std::uint32_t kEchoVersion = 1;
inline constexpr std::uint32_t kNullProcedure = 0;
inline constexpr std::uint32_t kEchoProcedure = 1;
inline constexpr std::uint32_t kMaxEchoBytes = 64u << 10;
/// Calls whose data is in registered memory at the same time. Data of further calls is copied.
inline constexpr std::uint32_t kEchoBlocks = 8;

class EchoService final : public service::Service {
 public:
  /// Setup. Allocates kEchoBlocks blocks of `device`, which must outlive the service. Throws SetupError.
  explicit EchoService(rdma::Device& device);

  const service::Binding& binding() const noexcept override;
  service::Placement place(service::Call& call) noexcept override;
  service::Execution execute(service::Call& call) noexcept override;
  void release(service::Call& call) noexcept override;

  /// Returns the number of blocks that no call uses.
  std::size_t free_blocks() const noexcept { return free_.size(); }

 private:
  std::byte* block(std::uint32_t number) const noexcept;
  static service::Execution copy(service::Call& call) noexcept;

  const rdma::MemoryRegion memory_;
  FixedStack<std::uint32_t> free_;  ///< numbers of unused blocks
};

}  // namespace sluice::examples
