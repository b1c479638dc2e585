// SPDX-License-Identifier: Apache-2.0
//
// Messages of MOUNT, compared with rpcgen's code for the protocol's XDR description.
#include "controlplane/mount/protocol.h"

#include <gtest/gtest.h>
#include <rpc/rpc.h>

#include "mount3.h"
#include "tests/unit/controlplane/mount/mount_lab.h"

namespace sluice::mount {
namespace {

using namespace lab;

template <typename T>
Bytes by_rpcgen(bool_t (*function)(XDR*, T*), T& value) {
  Bytes room(8192);
  XDR xdr;
  xdrmem_create(&xdr, reinterpret_cast<char*>(room.data()), static_cast<unsigned>(room.size()), XDR_ENCODE);
  EXPECT_TRUE(function(&xdr, &value));
  room.resize(xdr_getpos(&xdr));
  return room;
}

Bytes rpcgen_answer() {
  char handle[] = {1, 2, 3, 4, 5};
  int flavors[] = {6, 1};
  mnt_res result{};
  result.mnt_res_u.ok = {{sizeof handle, handle}, {2, flavors}};
  return by_rpcgen(&xdr_mnt_res, result);
}

Bytes rpcgen_exports() {
  char name[] = "192.0.2.0/24";
  char first[] = "/a";
  char second[] = "/bcde";
  mnt_group_node group{name, nullptr};
  mnt_export_node last{second, nullptr, nullptr};
  mnt_export_node one{first, &group, &last};
  mnt_exports head = &one;
  return by_rpcgen(&xdr_mnt_exports, head);
}

TEST(MountProtocol, answers_are_those_of_rpcgen) {
  const Bytes theirs = rpcgen_answer();
  xdr::Reader reader(theirs);
  const auto answer = decode_mount_answer(reader);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->handle.size(), 5u);
  EXPECT_EQ(answer->flavors, (std::vector<std::uint32_t>{6, 1}));
  EXPECT_EQ(encoded([&](xdr::Writer& writer) { encode(writer, *answer); }), theirs);
}

TEST(MountProtocol, lists_are_those_of_rpcgen) {
  const Bytes theirs = rpcgen_exports();
  xdr::Reader reader(theirs);
  const auto paths = decode_paths(reader);
  ASSERT_TRUE(paths);
  EXPECT_EQ(*paths, (std::vector<std::string>{"/a", "/bcde"}));
  const Bytes ours = encoded([&](xdr::Writer& writer) { encode(writer, *paths); });
  EXPECT_EQ(ours.size(), encoded_bytes(*paths));
  XDR xdr;
  xdrmem_create(&xdr, const_cast<char*>(reinterpret_cast<const char*>(ours.data())),
                static_cast<unsigned>(ours.size()), XDR_DECODE);
  mnt_exports list = nullptr;
  ASSERT_TRUE(xdr_mnt_exports(&xdr, &list));
  EXPECT_STREQ(list->path, "/a");
  EXPECT_STREQ(list->next->path, "/bcde");
  EXPECT_EQ(list->next->next, nullptr);
  xdr_free(reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(&xdr_mnt_exports)),
           reinterpret_cast<char*>(&list));
}

TEST(MountProtocol, every_truncation_is_refused) {
  const Bytes answer = rpcgen_answer();
  const Bytes exports = rpcgen_exports();
  for (std::size_t bytes = 0; bytes < answer.size(); ++bytes) {
    xdr::Reader reader{std::span<const std::byte>(answer).first(bytes)};
    EXPECT_FALSE(decode_mount_answer(reader)) << bytes;
  }
  for (std::size_t bytes = 0; bytes < exports.size(); ++bytes) {
    xdr::Reader reader{std::span<const std::byte>(exports).first(bytes)};
    EXPECT_FALSE(decode_paths(reader)) << bytes;
  }
}

TEST(MountProtocol, a_count_of_flavors_is_not_trusted) {
  const Bytes hostile = encoded([](xdr::Writer& writer) { writer.words(0, 4, 0, 0xFFFFFFFF, 1, 2); });
  xdr::Reader reader(hostile);
  EXPECT_FALSE(decode_mount_answer(reader));
}

}  // namespace
}  // namespace sluice::mount
