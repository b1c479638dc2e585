// SPDX-License-Identifier: Apache-2.0
//
// Parses frames from the link: parsing, the invariant CRC and the transport headers read nothing out of
// bounds. A packet that decodes encodes to headers of the same length, the answer to any other frame fits its
// buffer, and a frame that matches the headers of another one is the same packet on the general path.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/neighbours.h"
#include "pmd/softroce/wire.h"
#include "tests/unit/pmd/softroce/expected_headers_check.h"

using namespace sluice::rdma;
using namespace sluice::rdma::softroce;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::byte> frame(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  static const PortConfig config = [] {
    PortConfig made;
    made.addresses = {{sluice::PeerAddress::from_ipv4(10, 77, 0, 1), 120},
                      {sluice::PeerAddress{{0xfe, 0x80}}, 64}};
    return made;
  }();
  static NeighbourCache cache;
  static const std::uint64_t now_ns = 0;
  static const MacAddress own{2, 0, 0, 0, 0, 1};
  static Neighbours neighbours(config, own, cache, now_ns);
  static Statistics statistics;
  // The last three bytes say which byte of the next frame differs from this one, and in which bits.
  if (size > 3) {
    std::vector<std::byte> next = frame;
    next[(data[size - 3] << 8 | data[size - 2]) % size] ^= std::byte{data[size - 1]};
    if (compare(frame, next) == Expectation::Disagrees) std::abort();
  }
  const Frame parsed = parse(frame);
  if (parsed.kind != FrameKind::Roce) {
    std::vector<std::byte> answer(kMaxAnswerBytes);
    if (neighbours.on_frame(parsed, frame, answer.data(), statistics) > answer.size()) std::abort();
    return 0;
  }
  icrc_correct(parsed, frame);
  const auto packet = decode(parsed.transport);
  if (!packet) return 0;
  std::byte headers[kMaxTransportHeaderBytes];
  const std::size_t bytes = encode_headers(*packet, headers);
  if (bytes > sizeof headers ||
      bytes + packet->payload.size() + packet->bth.pad_bytes != parsed.transport.size())
    std::abort();
  const auto again = decode(std::span(headers).first(bytes));
  // Headers without their payload decode again only if there is no pad.
  if (packet->bth.pad_bytes == 0 && (!again || again->bth.psn != packet->bth.psn)) std::abort();
  return 0;
}
