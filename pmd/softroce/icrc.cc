// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/icrc.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

std::uint32_t icrc_start(const std::byte* network, std::size_t network_bytes,
                         std::size_t transport_bytes) noexcept {
  // Eight bytes of ones replace the local routing header.
  constexpr std::size_t kPseudo = 8;
  // A short packet is one call of the library, whose calls cost more than copying does.
  constexpr std::size_t kTogether = 256;
  std::byte masked[kPseudo + kIpv6Bytes + kUdpBytes + kTogether];
  const std::size_t together = std::min(transport_bytes, kTogether);
  std::memset(masked, 0xFF, kPseudo);
  std::byte* const ip = masked + kPseudo;
  const std::size_t ip_bytes = network_bytes - kUdpBytes;
  std::memcpy(ip, network, network_bytes + together);
  if (ip_bytes == kIpv4Bytes) {
    ip[1] = std::byte{0xFF};
    ip[8] = std::byte{0xFF};
    ip[10] = ip[11] = std::byte{0xFF};
  } else {
    ip[0] |= std::byte{0x0F};
    ip[1] = ip[2] = ip[3] = std::byte{0xFF};
    ip[7] = std::byte{0xFF};
  }
  ip[ip_bytes + 6] = ip[ip_bytes + 7] = std::byte{0xFF};
  ip[network_bytes + 4] = std::byte{0xFF};
  const std::uint32_t crc = icrc_continue(0, {masked, kPseudo + network_bytes + together});
  if (together == transport_bytes) return crc;
  return icrc_continue(crc, {network + network_bytes + together, transport_bytes - together});
}

std::uint32_t icrc_continue(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace sluice::rdma::softroce
