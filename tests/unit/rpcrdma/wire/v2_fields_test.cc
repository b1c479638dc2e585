// SPDX-License-Identifier: Apache-2.0
//
// Each field that decoding a version 2 header yields, for each message type and each error.
#include <gtest/gtest.h>

#include <vector>

#include "dataplane/rpcrdma/connection.h"

namespace sluice::rpcrdma::v2 {
namespace {

using Bytes = std::vector<std::byte>;

Bytes words(std::initializer_list<std::uint32_t> list) {
  Bytes bytes(list.size() * 4);
  std::size_t at = 0;
  for (const std::uint32_t word : list) xdr::store_u32(bytes.data() + 4 * at++, word);
  return bytes;
}

struct Case {
  const char* what;
  Bytes message;
  Decode status;
  HeaderType type;
  std::uint32_t flags;
  std::size_t header_bytes;
  std::size_t properties;
  std::uint32_t invalidate;
};

TEST(V2Fields, each_type_of_message_and_each_defect) {
  constexpr std::uint32_t kXid = 0x11223344;
  constexpr std::uint32_t kCredit = 0x00400007;
  const Case cases[] = {
      {"Msg", words({kXid, 2, kCredit, 0, 0, 9, 0, 0, 0, 1}), Decode::Ok, HeaderType::Msg, 0, 36, 0, 9},
      {"Msg in parts", words({kXid, 2, kCredit, 0, 3, 9, 0, 0, 0, 1}), Decode::Ok, HeaderType::Msg, 3, 36, 0,
       9},
      {"Msg with a Read chunk", words({kXid, 2, kCredit, 0, 0, 0, 1, 44, 1, 2, 3, 4, 0, 0, 0, 1}), Decode::Ok,
       HeaderType::Msg, 0, 60, 0, 0},
      {"NoMsg", words({kXid, 2, kCredit, 1, 1, 9, 0, 0, 0}), Decode::Ok, HeaderType::NoMsg, 1, 36, 0, 9},
      {"ConnProp", words({kXid, 2, kCredit, 5, 0, 0}), Decode::Ok, HeaderType::ConnProp, 0, 20, 4, 0},
      {"ConnProp in parts", words({kXid, 2, kCredit, 5, 2, 0, 1}), Decode::Ok, HeaderType::ConnProp, 2, 20, 8,
       0},
      {"ConnProp without a body", words({kXid, 2, kCredit, 5, 0}), Decode::BadXdr, HeaderType::ConnProp, 0,
       20, 0, 0},
      {"type", words({kXid, 2, kCredit, 9, 1, 7, 0, 0, 0}), Decode::BadType, static_cast<HeaderType>(9), 1,
       20, 0, 0},
      {"flags", words({kXid, 2, kCredit, 0, 5, 7, 0, 0, 0, 1}), Decode::BadFlags, HeaderType::Msg, 5, 20, 0,
       0},
      {"NoMsg in parts", words({kXid, 2, kCredit, 1, 2, 7, 0, 0, 0}), Decode::BadFlags, HeaderType::NoMsg, 2,
       20, 0, 0},
      {"lists that are cut off", words({kXid, 2, kCredit, 0, 0, 7, 0, 0}), Decode::BadXdr, HeaderType::Msg, 0,
       20, 0, 0},
      {"nothing behind a Msg", words({kXid, 2, kCredit, 0, 0, 7, 0, 0, 0}), Decode::BadXdr, HeaderType::Msg,
       0, 36, 0, 7},
      {"something behind a NoMsg", words({kXid, 2, kCredit, 1, 0, 7, 0, 0, 0, 1}), Decode::BadXdr,
       HeaderType::NoMsg, 0, 36, 0, 7},
      {"a part with chunks", words({kXid, 2, kCredit, 0, 2, 7, 0, 1, 0, 0, 0, 1}), Decode::BadFlags,
       HeaderType::Msg, 2, 44, 0, 7},
      {"error", words({kXid, 2, kCredit, 4, 1, 10}), Decode::Ok, HeaderType::Error, 1, 24, 0, 0},
      {"error with a word", words({kXid, 2, kCredit, 4, 1, 7, 16}), Decode::Ok, HeaderType::Error, 1, 28, 0,
       0},
      {"error with two", words({kXid, 2, kCredit, 4, 1, 8, 1, 2}), Decode::Ok, HeaderType::Error, 1, 32, 0,
       0},
      {"error of another version", words({kXid, 7, kCredit, 4, 0, 10}), Decode::Ok, HeaderType::Error, 0, 24,
       0, 0},
      {"error that is cut off", words({kXid, 2, kCredit, 4, 1, 8, 1}), Decode::BadError, HeaderType::Error, 1,
       28, 0, 0},
      {"version", words({kXid, 3, kCredit, 0}), Decode::BadVersion, HeaderType::Msg, 0, 0, 0, 0},
      {"fragment", words({kXid, 2, kCredit, 0}), Decode::Fragment, HeaderType::Msg, 0, 0, 0, 0},
  };
  for (const Case& some : cases) {
    const DecodeResult decoded = decode(some.message);
    EXPECT_EQ(decoded.status, some.status) << some.what;
    EXPECT_EQ(decoded.header.type, some.type) << some.what;
    EXPECT_EQ(decoded.header.flags, some.flags) << some.what;
    EXPECT_EQ(decoded.header.properties.size(), some.properties) << some.what;
    EXPECT_EQ(static_cast<std::uint32_t>(decoded.header.invalidate), some.invalidate) << some.what;
    EXPECT_EQ(static_cast<std::uint32_t>(decoded.header.fixed.xid), kXid) << some.what;
    EXPECT_EQ(decoded.header.credit, (CreditWord{7, 64})) << some.what;
    if (some.status != Decode::BadError) {
      EXPECT_EQ(decoded.header.header_bytes, some.header_bytes) << some.what;
    }
  }
  EXPECT_EQ(static_cast<std::uint32_t>(decode(std::span(cases[0].message).first(15)).header.fixed.xid), 0u);
}

/// Lists of every length up to the limits, and one entry more.
TEST(V2Fields, V2_117_as_many_segments_as_there_is_room_for) {
  const Segment segment{rdma::Rkey{1}, 4, 0};
  const auto status = [](const CallChunks& chunks) {
    Bytes message(header_bytes(chunks) + 4);
    xdr::Writer writer(message);
    encode_call(writer, {rpc::Xid{1}, {}, 0}, HeaderType::Msg, {}, chunks);
    return decode(message).status;
  };
  for (const std::size_t more : {0u, 1u}) {
    const Decode expected = more == 0 ? Decode::Ok : Decode::TooManySegments;
    const std::vector<ReadSegment> reads(kMaxReadSegments + more, {Position{44}, segment});
    EXPECT_EQ(status({.reads = reads, .writes = {}, .reply = std::nullopt}), expected);
    const std::vector<Segment> one{segment};
    const std::vector<std::span<const Segment>> writes(kMaxWriteChunks + more, one);
    EXPECT_EQ(status({.reads = {}, .writes = writes, .reply = std::nullopt}),
              more == 0 ? Decode::Ok : Decode::TooManyWrites);
    const std::vector<Segment> many(kMaxWriteSegments + more, segment);
    const std::vector<std::span<const Segment>> chunk{many};
    EXPECT_EQ(status({.reads = {}, .writes = chunk, .reply = std::nullopt}), expected);
    EXPECT_EQ(status({.reads = {}, .writes = {}, .reply = many}), expected);
  }
}

}  // namespace
}  // namespace sluice::rpcrdma::v2
