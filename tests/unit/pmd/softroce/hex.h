// SPDX-License-Identifier: Apache-2.0
//
// Frames in hexadecimal notation for tests, without spaces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::rdma::softroce {

using Bytes = std::vector<std::byte>;

inline Bytes from_hex(std::string_view hex) {
  Bytes out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return out;
}

}  // namespace sluice::rdma::softroce
