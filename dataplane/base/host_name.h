// SPDX-License-Identifier: Apache-2.0
//
// Name of an authenticated host in version 2 (deploy/docs/host-authentication.md), of fixed size for the
// shared segment. A plain value; any thread. A name never exceeds kMaxHostNameBytes, even if another process
// has stored arbitrary bytes in it.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace sluice {

/// Maximum size of a name, as on the wire: without a terminating zero.
inline constexpr std::size_t kMaxHostNameBytes = 64;

class HostName {
 public:
  /// Creates an empty name, which means that the host is not authenticated.
  constexpr HostName() = default;
  /// Creates a name. The result is empty if `name` is too long, because a truncated name could be another
  /// host's.
  constexpr explicit HostName(std::string_view name) noexcept {
    if (name.size() <= kMaxHostNameBytes) name.copy(bytes_.data(), name.size());
  }

  constexpr bool empty() const noexcept { return bytes_[0] == '\0'; }
  /// Returns a view that is valid as long as the name.
  constexpr std::string_view view() const noexcept {
    const std::string_view all(bytes_.data(), bytes_.size());
    return all.substr(0, all.find('\0'));
  }
  constexpr bool operator==(const HostName& other) const noexcept { return view() == other.view(); }

 private:
  std::array<char, kMaxHostNameBytes> bytes_{};
};

}  // namespace sluice
