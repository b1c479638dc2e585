// SPDX-License-Identifier: Apache-2.0
//
// Feeds the lock proxy with messages of clients, upstreams and unknown hosts. A call either gets exactly one
// reply immediately, or is forwarded to the upstream and gets none. The first byte selects the caller: 0 is
// the upstream, 1 a client, any other value an address without access. Decoded arguments encode to a message
// of equal length and content.
#include <cstdlib>

#include "controlplane/locks/lock_service.h"

using namespace sluice;
using namespace sluice::locks;

namespace {

constexpr PeerAddress kUpstream = PeerAddress::from_ipv4(127, 0, 0, 1);
constexpr PeerAddress kClient = PeerAddress::from_ipv4(127, 0, 0, 2);

void decode(std::span<const std::byte> bytes) {
  for (const std::uint32_t procedure : {kTest, kLock, kCancel, kUnlock}) {
    xdr::Reader reader(bytes);
    const auto arguments = decode_arguments(reader, procedure);
    if (!arguments) continue;
    std::array<std::byte, kMaxArgumentsBytes> room;
    xdr::Writer writer(room);
    encode(writer, procedure, *arguments);
    if (!writer.ok() || writer.position() != reader.position()) std::abort();
    xdr::Reader again(writer.written());
    if (decode_arguments(again, procedure) != arguments) std::abort();
  }
  for (const bool test : {false, true}) {
    xdr::Reader reader(bytes);
    decode_result(reader, test);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  LockStatistics statistics;
  ProxySettings settings;
  settings.name = "gateway";
  settings.where = [] { return std::optional<PeerAddress>(); };
  settings.is_upstream = [](const PeerAddress& address) { return address == kUpstream; };
  LockProxy proxy(settings, statistics, nullptr);
  LockProcedures procedures(
      proxy, [](const PeerAddress& address) { return address == kClient; }, settings.is_upstream, statistics);
  int replies = 0;
  const onc_rpc::Asker asker{.address = data[0] == 0   ? kUpstream
                                        : data[0] == 1 ? kClient
                                                       : PeerAddress::from_ipv4(127, 0, 0, 3),
                             .now_ns = 1};
  const bool called = procedures.answer(bytes, asker, 1024, [&](std::span<const std::byte> reply) {
    ++replies;
    xdr::Reader reader(reply);
    if (!rpc::decode_reply(reader).ok) std::abort();
  });
  const bool forwarded = statistics.owners.load() > 0;
  if (forwarded && replies > 0) std::abort();
  if (!forwarded && replies != (called ? 1 : 0)) std::abort();
  decode(bytes);
  return 0;
}
