// SPDX-License-Identifier: Apache-2.0
//
// Worked examples of version 2, word by word.
#pragma once

#include <array>
#include <cstdint>

namespace sluice::golden::v2 {

/// Short Call, first message: NFSv3 NULL, AUTH_NONE.
inline constexpr std::array<std::uint32_t, 19> kA = {
    0x11223344, 0x00000002, 0x0040003f, 0x00000000,
    0x00000000, 0x00000000, 0x00000000, 0x00000000,
    0x00000000, 0x11223344, 0x00000000, 0x00000002,
    0x000186a3, 0x00000003, 0x00000000, 0x00000000,
    0x00000000, 0x00000000, 0x00000000,
};
/// Its Reply.
inline constexpr std::array<std::uint32_t, 15> kB = {
    0x11223344, 0x00000002, 0x0080007f, 0x00000000,
    0x00000001, 0x00000000, 0x00000000, 0x00000000,
    0x00000000, 0x11223344, 0x00000001, 0x00000000,
    0x00000000, 0x00000000, 0x00000000,
};
/// Continued Call, first part of two: NFSv3 GETATTR, 48-octet payload split 24 + 24.
inline constexpr std::array<std::uint32_t, 15> kC1 = {
    0x11223345, 0x00000002, 0x00400001, 0x00000000,
    0x00000002, 0x00000000, 0x00000000, 0x00000000,
    0x00000000, 0x11223345, 0x00000000, 0x00000002,
    0x000186a3, 0x00000003, 0x00000001,
};
/// Second part.
inline constexpr std::array<std::uint32_t, 15> kC2 = {
    0x11223345, 0x00000002, 0x00400000, 0x00000000,
    0x00000000, 0x00000000, 0x00000000, 0x00000000,
    0x00000000, 0x00000000, 0x00000000, 0x00000000,
    0x00000000, 0x00000004, 0xa1a2a3a4,
};
/// Call with Write chunk and inv_handle: NFSv3 READ, 4096 octets.
inline constexpr std::array<std::uint32_t, 30> kD = {
    0x11223346, 0x00000002, 0x00400001, 0x00000000,
    0x00000000, 0x00008a01, 0x00000000, 0x00000001,
    0x00000001, 0x00008a01, 0x00001000, 0x00007f00,
    0xa0001000, 0x00000000, 0x00000000, 0x11223346,
    0x00000000, 0x00000002, 0x000186a3, 0x00000003,
    0x00000006, 0x00000000, 0x00000000, 0x00000000,
    0x00000000, 0x00000004, 0xa1a2a3a4, 0x00000000,
    0x00000000, 0x00001000,
};
/// The Reply to that READ: 1001 octets read, pushed by RDMA Write; no padding anywhere.
inline constexpr std::array<std::uint32_t, 26> kE = {
    0x11223346, 0x00000002, 0x00800001, 0x00000000,
    0x00000001, 0x00000000, 0x00000000, 0x00000001,
    0x00000001, 0x00008a01, 0x000003e9, 0x00007f00,
    0xa0001000, 0x00000000, 0x00000000, 0x11223346,
    0x00000001, 0x00000000, 0x00000000, 0x00000000,
    0x00000000, 0x00000000, 0x00000000, 0x000003e9,
    0x00000001, 0x000003e9,
};
/// Grant-only message: 32 new credits.
inline constexpr std::array<std::uint32_t, 9> kF = {
    0x00000000, 0x00000002, 0x00800020, 0x00000001,
    0x00000000, 0x00000000, 0x00000000, 0x00000000,
    0x00000000,
};
/// CONNPROP with three properties.
inline constexpr std::array<std::uint32_t, 15> kG = {
    0x00000001, 0x00000002, 0x0040003f, 0x00000005,
    0x00000000, 0x00000003, 0x00000001, 0x00000004,
    0x00010000, 0x00000002, 0x00000004, 0x00010000,
    0x00000005, 0x00000004, 0x00000002,
};
/// CONNPROP: default by length 0, unknown id, host authentication.
inline constexpr std::array<std::uint32_t, 16> kH = {
    0x00000001, 0x00000002, 0x0040003f, 0x00000005,
    0x00000000, 0x00000003, 0x00000002, 0x00000000,
    0x7fff0001, 0x00000003, 0xdeadbe00, 0x00000006,
    0x0000000c, 0x00000005, 0x01020304, 0x05000000,
};
/// Long Call: payload of 9192 octets in two segments, Reply chunk of 16384, inv_handle 0x9B02.
inline constexpr std::array<std::uint32_t, 26> kI = {
    0x11223347, 0x00000002, 0x00400001, 0x00000001,
    0x00000000, 0x00009b02, 0x00000001, 0x00000000,
    0x00009b01, 0x00002000, 0x00000000, 0x00010000,
    0x00000001, 0x00000000, 0x00009b02, 0x000003e8,
    0x00000000, 0x00024000, 0x00000000, 0x00000000,
    0x00000001, 0x00000001, 0x00009b03, 0x00004000,
    0x00000000, 0x00030000,
};
/// Long Reply: 9120 octets written into the Reply chunk.
inline constexpr std::array<std::uint32_t, 14> kJ = {
    0x11223347, 0x00000002, 0x00800001, 0x00000001,
    0x00000001, 0x00000000, 0x00000000, 0x00000000,
    0x00000001, 0x00000001, 0x00009b03, 0x000023a0,
    0x00000000, 0x00030000,
};
/// Continued CONNPROP (D2-25): 36-octet body split 20 + 16.
inline constexpr std::array<std::uint32_t, 10> kK1 = {
    0x00000002, 0x00000002, 0x00400001, 0x00000005,
    0x00000002, 0x00000001, 0x00000006, 0x00000018,
    0x00000014, 0x01020304,
};
/// Second part.
inline constexpr std::array<std::uint32_t, 9> kK2 = {
    0x00000002, 0x00000002, 0x00400000, 0x00000005,
    0x00000000, 0x05060708, 0x090a0b0c, 0x0d0e0f10,
    0x11121314,
};
/// ERR_VERS 1..2 as Sluice sends it (RFC 8166 form, request had vers 2).
inline constexpr std::array<std::uint32_t, 7> kL1 = {0x11223348, 0x00000002, 0x00000020, 0x00000004, 0x00000001, 0x00000001, 0x00000002};
/// ERR_VERS 1..2 in the form of the draft's XDR.
inline constexpr std::array<std::uint32_t, 8> kL1V = {0x11223348, 0x00000002, 0x00800000, 0x00000004, 0x00000001, 0x00000001, 0x00000001, 0x00000002};
/// BAD_XDR.
inline constexpr std::array<std::uint32_t, 6> kL2 = {0x11223348, 0x00000002, 0x00800000, 0x00000004, 0x00000001, 0x00000002};
/// INVAL_HTYPE.
inline constexpr std::array<std::uint32_t, 6> kL3 = {0x11223348, 0x00000002, 0x00800000, 0x00000004, 0x00000001, 0x00000003};
/// INVAL_FLAG.
inline constexpr std::array<std::uint32_t, 6> kL4 = {0x11223348, 0x00000002, 0x00800000, 0x00000004, 0x00000001, 0x00000004};
/// READ_CHUNKS, at most 1.
inline constexpr std::array<std::uint32_t, 7> kL5 = {0x11223348, 0x00000002, 0x00800000, 0x00000004, 0x00000001, 0x00000005, 0x00000001};
/// WRITE_CHUNKS, at most 1.
inline constexpr std::array<std::uint32_t, 7> kL6 = {0x11223348, 0x00000002, 0x00800000, 0x00000004, 0x00000001, 0x00000006, 0x00000001};
/// SEGMENTS, at most 16.
inline constexpr std::array<std::uint32_t, 7> kL7 = {0x11223348, 0x00000002, 0x00800000, 0x00000004, 0x00000001, 0x00000007, 0x00000010};
/// WRITE_RESOURCE, first chunk, 1 MiB needed.
inline constexpr std::array<std::uint32_t, 8> kL8 = {0x11223348, 0x00000002, 0x00800000, 0x00000004, 0x00000001, 0x00000008, 0x00000001, 0x00100000};
/// REPLY_RESOURCE, 9120 needed.
inline constexpr std::array<std::uint32_t, 7> kL9 = {0x11223348, 0x00000002, 0x00800000, 0x00000004, 0x00000001, 0x00000009, 0x000023a0};
/// SYSTEM.
inline constexpr std::array<std::uint32_t, 6> kL10 = {0x11223348, 0x00000002, 0x00800000, 0x00000004, 0x00000001, 0x0000000a};

}  // namespace sluice::golden::v2
