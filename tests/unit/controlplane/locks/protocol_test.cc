// SPDX-License-Identifier: Apache-2.0
//
// Messages of RFC 1813, appendix II, written by hand and decoded by rpcgen's code.
#include "controlplane/locks/protocol.h"

#include "tests/unit/controlplane/locks/lock_lab.h"

namespace sluice::locks {
namespace {

using namespace lab;

const LockArguments kArguments{.cookie = Bytes(3, std::byte{0xAA}),
                               .block = true,
                               .exclusive = false,
                               .lock = {.caller = "client",
                                        .handle = Bytes(5, std::byte{0x11}),
                                        .owner = Bytes(2, std::byte{0x22}),
                                        .svid = 0xFFFFFFFF,
                                        .offset = 0x0102030405060708,
                                        .length = 9},
                               .reclaim = true,
                               .state = 7};

Bytes hex(const std::string& digits) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

const std::string kLockHex =
    "00000006636c69656e740000"                   // caller_name
    "000000051111111111000000"                   // fh
    "0000000222220000"                           // oh
    "ffffffff01020304050607080000000000000009";  // svid, l_offset, l_len
const std::string kCookieHex = "00000003aaaaaa00";

TEST(LockProtocol, arguments_are_those_of_the_rfc) {
  const std::map<std::uint32_t, std::string> messages{
      {kTest, kCookieHex + "00000000" + kLockHex},
      {kLock, kCookieHex + "0000000100000000" + kLockHex + "0000000100000007"},
      {kNmLock, kCookieHex + "0000000100000000" + kLockHex + "0000000100000007"},
      {kCancel, kCookieHex + "0000000100000000" + kLockHex},
      {kUnlock, kCookieHex + kLockHex},
      {kGranted, kCookieHex + "00000000" + kLockHex}};
  for (const auto& message : messages) {
    const std::uint32_t procedure = message.first;
    const Bytes bytes = hex(message.second);
    EXPECT_EQ(encoded([&](xdr::Writer& writer) { encode(writer, procedure, kArguments); }), bytes)
        << procedure;
    xdr::Reader reader(bytes);
    const auto decoded = decode_arguments(reader, procedure);
    ASSERT_TRUE(decoded) << procedure;
    EXPECT_EQ(decoded->lock, kArguments.lock);
    EXPECT_EQ(decoded->reclaim, procedure == kLock || procedure == kNmLock);
    EXPECT_EQ(reader.remaining(), 0u);
    for (std::size_t shorter = 0; shorter < bytes.size(); ++shorter) {
      xdr::Reader cut(std::span<const std::byte>(bytes).first(shorter));
      EXPECT_FALSE(decode_arguments(cut, procedure)) << procedure << " cut at " << shorter;
    }
  }
}

TEST(LockProtocol, rpcgen_reads_what_is_written) {
  const Decoded<lk_lockargs> lock(&xdr_lk_lockargs,
                                  encoded([](xdr::Writer& writer) { encode(writer, kLock, kArguments); }));
  EXPECT_STREQ(lock->alock.caller_name, "client");
  EXPECT_EQ(lock->alock.svid, 0xFFFFFFFF);
  EXPECT_EQ(lock->alock.l_offset, 0x0102030405060708u);
  EXPECT_EQ(lock->alock.l_len, 9u);
  EXPECT_TRUE(lock->block && !lock->exclusive && lock->reclaim);
  EXPECT_EQ(lock->state, 7);
  const LockResult denied{
      .cookie = {}, .stat = Stat::Denied, .holder = Holder{true, 4, Bytes(3, std::byte{'o'}), 5, 6}};
  const Decoded<lk_testres> tested(&xdr_lk_testres,
                                   encoded([&](xdr::Writer& writer) { encode(writer, denied, true); }));
  ASSERT_EQ(tested->test_stat.stat, LK_DENIED);
  const lk_holder& holder = tested->test_stat.lk_testrply_u.holder;
  EXPECT_TRUE(holder.exclusive);
  EXPECT_EQ(holder.svid, 4u);
  EXPECT_EQ(text(holder.oh), "ooo");
  EXPECT_EQ(holder.l_offset, 5u);
  EXPECT_EQ(holder.l_len, 6u);
  const Decoded<lk_res> plain(&xdr_lk_res,
                              encoded([&](xdr::Writer& writer) { encode(writer, denied, false); }));
  EXPECT_EQ(plain->stat, LK_DENIED);
}

TEST(LockProtocol, longest_arguments_have_room_and_longer_ones_are_refused) {
  LockArguments longest{
      .cookie = Bytes(kMaxString),
      .lock = {
          .caller = std::string(kMaxString, 'c'), .handle = Bytes(kMaxHandle), .owner = Bytes(kMaxString)}};
  const Bytes bytes = encoded([&](xdr::Writer& writer) { encode(writer, kLock, longest); });
  EXPECT_LE(bytes.size(), kMaxArgumentsBytes);
  xdr::Reader reader(bytes);
  EXPECT_EQ(decode_arguments(reader, kLock), longest);
  for (Bytes* const member : {&longest.cookie, &longest.lock.handle, &longest.lock.owner}) {
    member->push_back({});
    const Bytes beyond = encoded([&](xdr::Writer& writer) { encode(writer, kLock, longest); });
    member->pop_back();
    xdr::Reader refused(beyond);
    EXPECT_FALSE(decode_arguments(refused, kLock));
  }
}

TEST(LockProtocol, notices_are_a_name_and_a_state) {
  const Bytes bytes = lab::notice("client.example", 7);
  EXPECT_EQ(encoded([](xdr::Writer& writer) { encode(writer, HostState{"client.example", 7}); }), bytes);
  xdr::Reader reader(bytes);
  const auto decoded = decode_host_state(reader);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->name, "client.example");
  EXPECT_EQ(decoded->state, 7u);
}

}  // namespace
}  // namespace sluice::locks
