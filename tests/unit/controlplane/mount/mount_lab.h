// SPDX-License-Identifier: Apache-2.0
//
// Shared by tests of MOUNT: calls of its procedures.
#pragma once

#include <string>

#include "controlplane/mount/protocol.h"
#include "controlplane/mount/statistics.h"
#include "tests/unit/controlplane/onc_rpc/rpc_lab.h"

namespace sluice::mount::lab {

using namespace onc_rpc::lab;

inline Bytes path_argument(const std::string& path) {
  return encoded([&](xdr::Writer& writer) { writer.string(path); });
}

inline constexpr onc_rpc::Procedure kNullCall{kMountProgram, kMountVersion, kNull};
inline constexpr onc_rpc::Procedure kMntCall{kMountProgram, kMountVersion, kMnt};
inline constexpr onc_rpc::Procedure kExportCall{kMountProgram, kMountVersion, kExport};

}  // namespace sluice::mount::lab
