// SPDX-License-Identifier: Apache-2.0
//
// Null service, a ping and benchmark program. Procedure 0 returns no results (RFC 5531, section 12.1).
// Procedure 1 takes (uint32 n, anything) and returns n zero bytes, none of which the transport may reduce.
// All other procedures return PROC_UNAVAIL.
#pragma once

#include <array>

#include "dataplane/service/api/service.h"

namespace sluice::service {

/// Program number from the user-defined range of RFC 5531, section 14.3.
inline constexpr std::uint32_t kNullProgram = 0x20000099;
inline constexpr std::uint32_t kNullVersion = 1;
inline constexpr std::uint32_t kNullProcedure = 0;
inline constexpr std::uint32_t kBulkProcedure = 1;
inline constexpr std::uint32_t kMaxBulkBytes = 64u << 10;

class NullService final : public Service {
 public:
  const Binding& binding() const noexcept override { return binding_; }
  Execution execute(Call& call) noexcept override {
    switch (call.header().procedure) {
      case kNullProcedure:
        call.complete(rpc::AcceptStat::Success);
        return Execution::Started;
      case kBulkProcedure:
        return give(call);
      default:
        call.complete(rpc::AcceptStat::ProcUnavail);
        return Execution::Started;
    }
  }

 private:
  /// A separate function, so that NULL does not pay for its stack frame.
  [[gnu::noinline]] static Execution give(Call& call) noexcept {
    static constexpr std::array<std::byte, kMaxBulkBytes> kZeros{};
    xdr::Reader arguments(call.arguments());
    const std::uint32_t bytes = arguments.u32();
    if (!arguments.ok() || bytes > kMaxBulkBytes) {
      call.complete(rpc::AcceptStat::GarbageArgs);
      return Execution::Started;
    }
    if (!call.require_results(xdr::padded(bytes))) return Execution::NeedsMemory;
    call.results().opaque_fixed(std::span(kZeros).first(bytes));
    call.complete(rpc::AcceptStat::Success);
    return Execution::Started;
  }

  static constexpr std::string_view kNames[] = {"null", "bulk"};
  Binding binding_{
      .program = kNullProgram, .version = kNullVersion, .name = "null", .procedure_names = kNames};
};

}  // namespace sluice::service
