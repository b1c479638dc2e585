// SPDX-License-Identifier: Apache-2.0
//
// Feeds the MOUNT server and client with messages of unknown hosts and servers. A call has one reply or none,
// and what is decoded from a server's reply is no larger than the reply.
#include <cstdlib>

#include "controlplane/events/journal.h"
#include "controlplane/mount/mount_service.h"
#include "controlplane/mount/protocol.h"
#include "controlplane/onc_rpc/rpcbind.h"

using namespace sluice;
using namespace sluice::mount;

namespace {

struct OneExport final : Exports {
  void mount(const std::string& path, const onc_rpc::Asker&, OnMount done) override {
    done({path == "/export" ? MountStatus::Ok : MountStatus::NoEnt, std::vector<std::byte>(kMaxHandle)});
  }
  void list(const onc_rpc::Asker&, OnList done) override {
    const std::vector<std::string> paths{"/export"};
    done(&paths);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMaxReply = 64;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  MountStatistics statistics;
  OneExport exports;
  events::Journal journal([](const events::Event&) {});
  Procedures procedures(exports, statistics, journal);
  int replies = 0;
  const bool called = procedures.answer(bytes, {}, kMaxReply, [&](std::span<const std::byte> reply) {
    ++replies;
    xdr::Reader reader(reply);
    if (!rpc::decode_reply(reader).ok) std::abort();
  });
  if (replies != (called ? 1 : 0)) std::abort();

  xdr::Reader mounted(bytes);
  if (const auto answer = decode_mount_answer(mounted))
    if (answer->handle.size() > kMaxHandle || answer->flavors.size() > kMaxFlavors) std::abort();
  xdr::Reader listed(bytes);
  if (const auto paths = decode_paths(listed))
    if (encoded_bytes(*paths) > listed.position()) std::abort();
  xdr::Reader registered(bytes);
  onc_rpc::decode_registrations(registered);
  onc_rpc::port_of_universal({reinterpret_cast<const char*>(data), size});
  return 0;
}
