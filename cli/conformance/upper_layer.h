// SPDX-License-Identifier: Apache-2.0
//
// DDP-eligible items of a call by RFC 8267, read from the call by hand. Pure functions, any thread.
#pragma once

#include "cli/conformance/client_message.h"

namespace sluice::conformance {

inline constexpr std::uint32_t kNfs = 100003;
inline constexpr std::uint32_t kNfsAcl = 100227;
inline constexpr std::uint32_t kAnySize = 0xFFFFFFFF;

struct EligibleArgument {
  std::uint32_t position = 0;  ///< position of its data, after the count word
  std::uint32_t bytes = 0;
};

struct UpperLayer {
  bool known = false;         ///< the call was parsed to its end
  std::size_t left_over = 0;  ///< bytes after that end
  std::vector<EligibleArgument> arguments{};
  std::vector<std::uint32_t> results{};  ///< largest size of each eligible result; kAnySize if the call does
                                         ///< not determine it
  std::optional<std::uint64_t>
      largest_reply{};  ///< largest RPC reply without eligible results, if the call determines it
};
UpperLayer upper_layer_of(const RpcCall& call);

/// Returns a name such as "READ" for the report.
std::string name_of(const RpcCall& call);

}  // namespace sluice::conformance
