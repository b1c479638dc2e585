// SPDX-License-Identifier: Apache-2.0
//
// Parts of the text that describes a virtual ethdev, and the kernel interface that it names. Pure functions;
// any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice {

/// Returns the kernel interface that an ethdev of this driver uses; empty if it uses none, or if the
/// arguments do not name it.
inline std::string_view kernel_interface(std::string_view driver, std::string_view arguments) noexcept {
  constexpr std::string_view kDrivers[] = {"net_af_packet", "net_af_xdp", "net_pcap", "net_tap"};
  constexpr std::string_view kKey = "iface=";
  bool stands_on_one = false;
  for (const std::string_view known : kDrivers) stands_on_one |= driver == known;
  while (stands_on_one && !arguments.empty()) {
    const std::string_view word = arguments.substr(0, arguments.find(','));
    if (word.starts_with(kKey)) return word.substr(kKey.size());
    arguments.remove_prefix(word.size() < arguments.size() ? word.size() + 1 : word.size());
  }
  return {};
}

/// Parts of the text that describes a virtual ethdev: "net_tap0,iface=dtap0" is driver "net_tap" with
/// arguments "iface=dtap0".
struct VirtualEthdev {
  std::string_view driver;
  std::string_view arguments;
};
inline VirtualEthdev virtual_ethdev(std::string_view text) noexcept {
  const std::size_t comma = text.find(',');
  std::string_view driver = text.substr(0, comma);
  while (!driver.empty() && driver.back() >= '0' && driver.back() <= '9') driver.remove_suffix(1);
  return {driver, comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1)};
}

/// Returns whether the driver creates its interface itself.
inline bool creates_interface(std::string_view driver) noexcept {
  return driver == "net_tap";
}

}  // namespace sluice
