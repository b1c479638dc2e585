// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests of READ and WRITE: calls that are suspended between their steps.
#pragma once

#include <algorithm>

#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {

using memory::kLargeBytes;
using memory::kSmallBytes;

inline Bytes part(const Bytes& bytes, std::size_t from, std::size_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(from);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

inline bool all_zero(const Bytes& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

/// A READ whose reply is still being sent.
class PendingRead {
 public:
  PendingRead(Lab& lab, const Handle& file, std::uint64_t offset, std::uint32_t count) : lab_(lab) {
    arguments_ = encode([&](auto& out) {
      out.opaque(file);
      out.u64(offset);
      out.u32(count);
    });
    lab.prepare(call, ulb::kNfs3Read, kRoot);
    call.start(arguments_);
    EXPECT_EQ(call.execute(lab.front()), Execution::Started);
  }
  ~PendingRead() { end(); }
  Bytes data() const { return decode(ulb::kNfs3Read, call.results()).data; }
  void end() { call.release(lab_.front()); }
  TestCall call;

 private:
  Lab& lab_;
  Bytes arguments_;
};

/// A WRITE whose data arrives in a Read chunk.
class PlacedWrite {
 public:
  PlacedWrite(Lab& lab, const Handle& file, std::uint64_t offset, std::uint32_t count,
              std::uint32_t surplus = 0, const Caller& who = kRoot)
      : lab_(lab), arguments_(write_head(file, offset, count)) {
    lab.prepare(call, ulb::kNfs3Write, who);
    call.start(arguments_, count + surplus);
    placement = call.place(lab.front());
  }
  ~PlacedWrite() { abandon(); }
  void pull(const Bytes& data) { call.pull(data); }
  Result commit() {
    EXPECT_EQ(call.execute(lab_.front()), Execution::Started);
    Result result = answer();
    call.release(lab_.front());
    return result;
  }
  Result answer() const {
    EXPECT_EQ(call.completions(), 1);
    Result result;
    result.accepted = call.accepted();
    if (call.denied()) result.denied = call.auth_error();
    return !call.denied() && call.accepted() == rpc::AcceptStat::Success
               ? decode(ulb::kNfs3Write, call.results())
               : result;
  }
  void abandon() { call.release(lab_.front()); }
  TestCall call;
  Placement placement;

 private:
  Lab& lab_;
  Bytes arguments_;
};

class Data : public testing::Test {
 protected:
  std::uint64_t size(const Handle& object) { return lab.getattr(object).attr.value_or(Attr{}).size; }
  std::uint64_t used(const Handle& object) { return lab.getattr(object).attr.value_or(Attr{}).used; }
  Lab lab;
  const Handle root = lab.root();
  const Handle f = lab.file(root, "f");
};

}  // namespace sluice::service::test
