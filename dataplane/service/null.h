// SPDX-License-Identifier: Apache-2.0
//
// The null service: procedure 0 of any program answers with no results, everything else PROC_UNAVAIL (RFC
// 5531, section 12.1). Ping and benchmark program.
#pragma once

#include "dataplane/service/service.h"

namespace sluice::service {

/// From the range that RFC 5531, section 14.3 leaves to the user.
inline constexpr std::uint32_t kNullProgram = 0x20000099;
inline constexpr std::uint32_t kNullVersion = 1;

class NullService final : public Service {
 public:
  const rpcrdma::Binding& binding() const noexcept override { return binding_; }
  Execution execute(Call& call) noexcept override {
    const bool known = call.header().procedure == 0;
    call.complete(known ? rpc::AcceptStat::Success : rpc::AcceptStat::ProcUnavail);
    return Execution::Started;
  }

 private:
  rpcrdma::Binding binding_{.program = kNullProgram, .version = kNullVersion};
};

}  // namespace sluice::service
