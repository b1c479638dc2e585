// SPDX-License-Identifier: Apache-2.0
//
// What RFC 8267 lets a client reduce, read out of the call by hand. Pure functions, any thread.
#pragma once

#include "cli/conformance/client_message.h"

namespace sluice::conformance {

inline constexpr std::uint32_t kNfs = 100003;
inline constexpr std::uint32_t kNfsAcl = 100227;
inline constexpr std::uint32_t kAnySize = 0xFFFFFFFF;

struct EligibleArgument {
  std::uint32_t position = 0;  ///< of its data, behind the count word
  std::uint32_t bytes = 0;
};

struct UpperLayer {
  bool known = false;         ///< the call was understood to its end
  std::size_t left_over = 0;  ///< bytes behind that end
  std::vector<EligibleArgument> arguments{};
  std::vector<std::uint32_t> results{};  ///< most bytes of each eligible one; kAnySize: not told by the call
  std::optional<std::uint64_t>
      largest_reply{};  ///< of the RPC reply without eligible results, where the call tells it
};
UpperLayer upper_layer_of(const RpcCall& call);

/// "READ" and so on, for the report.
std::string name_of(const RpcCall& call);

}  // namespace sluice::conformance
