// SPDX-License-Identifier: Apache-2.0
//
// Name under which a host has authenticated itself in version 2 (deploy/docs/host-authentication.md), of fixed size for the shared
// segment. A plain value; any thread. Whatever bytes another process has put there, a name has at most
// kMaxHostNameBytes.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace sluice {

/// As over the wire: without a terminating zero.
inline constexpr std::size_t kMaxHostNameBytes = 64;

class HostName {
 public:
  /// Nobody's: the host has not authenticated itself.
  constexpr HostName() = default;
  /// Nobody's too if it is longer than a name can be: cut off, it could be another host's.
  constexpr explicit HostName(std::string_view name) noexcept {
    if (name.size() <= kMaxHostNameBytes) name.copy(bytes_.data(), name.size());
  }

  constexpr bool empty() const noexcept { return bytes_[0] == '\0'; }
  /// Lives as long as the name.
  constexpr std::string_view view() const noexcept {
    const std::string_view all(bytes_.data(), bytes_.size());
    return all.substr(0, all.find('\0'));
  }
  constexpr bool operator==(const HostName& other) const noexcept { return view() == other.view(); }

 private:
  std::array<char, kMaxHostNameBytes> bytes_{};
};

}  // namespace sluice
