// SPDX-License-Identifier: Apache-2.0
//
// Records of RFC 5531, section 11, in a stream that is cut at every place.
#include "dataplane/tcp/record_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include "tests/unit/gateway/tcp_upstream/fake_upstream.h"

namespace sluice::tcp_upstream_test {
namespace {

using tcp::RecordStream;
using Step = tcp::RecordStream::Step;

constexpr std::size_t kBuffer = 64;
constexpr std::uint32_t kLongest = 300;

struct Reader {
  Bytes buffer = Bytes(kBuffer);
  Bytes memory = Bytes(kLongest);
  tcp::RecordStream stream{buffer, kLongest};
  std::vector<Bytes> records;
  bool broken = false;
  std::vector<std::uint32_t> skipped;  ///< first words of skipped records
  std::size_t lent = 0;
  std::function<bool()> on_need_memory;  ///< returns false to lend memory

  /// Feeds what a receive of at most `most` bytes accepts, and collects the records that are complete then.
  std::size_t feed(std::span<const std::byte> bytes, std::size_t most) {
    const auto room = stream.room();
    EXPECT_FALSE(room.empty());
    if (stream.awaits_all_of_room()) {
      EXPECT_LE(room.size(), bytes.size()) << "waits for what does not come";
    }
    const std::size_t taken = std::min({room.size(), bytes.size(), most});
    std::copy_n(bytes.begin(), taken, room.begin());
    stream.received(taken);
    drain();
    return taken;
  }
  void drain() {
    for (;;) {
      switch (stream.next()) {
        case Step::Record:
          records.emplace_back(stream.record().begin(), stream.record().end());
          stream.take_memory();
          break;
        case Step::NeedBytes:
          return;
        case Step::NeedMemory:
          ++lent;
          if (!on_need_memory || !on_need_memory()) stream.lend(memory.data());
          break;
        case Step::Skipped:
          skipped.push_back(word_at(stream.record(), 0));
          stream.take_memory();
          break;
        case Step::Broken:
          broken = true;
          return;
      }
    }
  }
  void feed_all(const Bytes& bytes, const std::function<std::size_t()>& most) {
    drain();
    for (std::size_t at = 0; at < bytes.size() && !broken;) at += feed(std::span(bytes).subspan(at), most());
  }
};

TEST(RecordStream, records_come_whole_however_the_stream_is_cut) {
  std::mt19937 engine(7);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int round = 0; round < 3000; ++round) {
    Bytes wire;
    std::vector<Bytes> sent;
    for (std::uint32_t i = 0; i < 1 + random() % 6; ++i) {
      const Bytes message = pattern(random() % (random() % 2 ? 40 : kLongest + 1), random());
      sent.push_back(message);
      std::size_t at = 0;
      const std::uint32_t pieces = 1 + random() % 5;
      for (std::uint32_t piece = 0; piece < pieces; ++piece) {
        const bool last = piece + 1 == pieces;
        const std::size_t bytes = last ? message.size() - at : random() % (message.size() - at + 1);
        append(wire, fragment(std::span(message).subspan(at, bytes), last));
        at += bytes;
      }
    }
    Reader reader;
    const std::size_t most = 1 + random() % 90;
    reader.feed_all(wire, [&] { return 1 + random() % most; });
    ASSERT_EQ(reader.records, sent) << "round " << round;
    ASSERT_FALSE(reader.broken);
  }
}

TEST(RecordStream, short_records_need_no_memory_and_long_ones_one_loan) {
  Reader reader;
  Bytes wire;
  for (const std::size_t bytes : {60u, 4u, 60u, 0u}) append(wire, record(pattern(bytes, 1)));
  reader.feed_all(wire, [] { return kBuffer; });
  EXPECT_EQ(reader.records.size(), 4u);
  EXPECT_EQ(reader.lent, 0u);
  reader.feed_all(record(pattern(kLongest, 2)), [] { return kBuffer; });
  EXPECT_EQ(reader.records.back(), pattern(kLongest, 2));
  EXPECT_EQ(reader.lent, 1u);
}

TEST(RecordStream, the_bytes_of_a_long_record_are_received_where_they_belong) {
  Reader reader;
  const Bytes wire = record(pattern(200, 3));
  reader.drain();
  ASSERT_EQ(reader.feed(wire, 20), 20u);
  const auto room = reader.stream.room();
  EXPECT_EQ(room.data(), reader.memory.data() + 16);
  EXPECT_EQ(room.size(), 200u - 16);  // not beyond the record
  EXPECT_TRUE(reader.stream.awaits_all_of_room());
}

TEST(RecordStream, records_that_are_too_long_are_stepped_over_however_they_are_cut) {
  std::mt19937 engine(8);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int round = 0; round < 1000; ++round) {
    Bytes wire;
    std::vector<Bytes> fitting;
    std::vector<std::uint32_t> skipped;
    for (std::uint32_t i = 0; i < 8; ++i) {
      Bytes message = words({i});
      append(message, pattern(random() % (3 * kLongest), i));
      if (message.size() > kLongest)
        skipped.push_back(i);
      else
        fitting.push_back(message);
      std::size_t at = 0;
      for (std::uint32_t piece = random() % 4; at < message.size(); ++piece) {
        const std::size_t bytes = piece > 5 ? message.size() - at : random() % (message.size() - at + 1);
        append(wire, fragment(std::span(message).subspan(at, bytes), at + bytes == message.size()));
        at += bytes;
      }
    }
    Reader reader;
    reader.feed_all(wire, [&] { return 1 + random() % 90; });
    ASSERT_EQ(reader.records, fitting) << "round " << round;
    ASSERT_EQ(reader.skipped, skipped);
    ASSERT_FALSE(reader.broken);
  }
}

TEST(RecordStream, a_mark_that_no_record_has_breaks_the_stream) {
  constexpr auto kTooLong = static_cast<std::uint32_t>(tcp::kMaxSkippedBytes) + 1;
  for (const std::uint32_t mark : {0xffffffffu, 0x7fffffffu, 0x80000000u | kTooLong}) {
    Reader reader;
    reader.feed_all(words({mark}), [] { return kBuffer; });
    EXPECT_TRUE(reader.broken) << std::hex << mark;
  }
  Reader reader;  // the sum of its fragments is too long
  Bytes wire = fragment(pattern(kLongest, 1), false);
  append(wire, fragment(pattern(1, 1), false));
  append(wire, words({kTooLong - 1}));
  reader.feed_all(wire, [] { return kBuffer; });
  EXPECT_TRUE(reader.broken);
}

/// RFC 5531, section 11, has no limit.
TEST(RecordStream, a_record_may_have_as_many_fragments_as_bytes) {
  constexpr std::uint32_t kBytes = 4000;
  const Bytes message = pattern(kBytes, 9);
  Bytes wire;
  for (std::uint32_t i = 0; i < kBytes; ++i)
    append(wire, fragment(std::span(message).subspan(i, 1), i + 1 == kBytes));
  append(wire, record(words({77})));
  for (const std::size_t buffer : {std::size_t{kBuffer}, std::size_t{16} << 10})
    for (const std::size_t most : {1u, 7u, 5000u}) {
      Bytes bytes(buffer);
      Reader reader;
      reader.memory.resize(kBytes);
      std::construct_at(&reader.stream, bytes, kBytes);
      reader.feed_all(wire, [&] { return most; });
      EXPECT_FALSE(reader.broken);
      EXPECT_EQ(reader.records, (std::vector{message, words({77})})) << buffer << " " << most;
    }
}

TEST(RecordStream, empty_fragments_without_end_break_the_stream) {
  Reader reader;
  Bytes wire;
  for (std::uint32_t i = 0; i <= tcp::kMaxEmptyFragments; ++i) append(wire, fragment({}, false));
  reader.feed_all(wire, [] { return kBuffer; });
  EXPECT_TRUE(reader.broken);
}

TEST(RecordStream, a_record_that_is_kept_comes_again) {
  Reader reader;
  std::copy_n(record(words({1, 2})).begin(), 12, reader.stream.room().begin());
  reader.stream.received(12);
  ASSERT_EQ(reader.stream.next(), Step::Record);
  reader.stream.keep();
  ASSERT_EQ(reader.stream.next(), Step::Record);
  EXPECT_EQ(word_at(reader.stream.record(), 1), 2u);
  EXPECT_EQ(reader.stream.next(), Step::NeedBytes);
}

TEST(RecordStream, a_record_that_does_not_fit_shows_its_first_two_words_and_may_be_skipped) {
  for (const bool skips : {false, true})
    for (std::size_t cut = 1; cut < 30; ++cut) {
      Reader reader;
      const Bytes message = pattern(200, static_cast<std::uint32_t>(cut));
      Bytes wire = fragment(std::span(message).first(3), false);
      append(wire, fragment(std::span(message).subspan(3), true));
      append(wire, record(words({77})));
      reader.on_need_memory = [&] {
        const auto head = reader.stream.head();
        EXPECT_TRUE(std::equal(head.begin(), head.end(), message.begin())) << cut;
        if (skips) reader.stream.skip_record();
        return skips;
      };
      std::size_t most = cut;
      reader.feed_all(wire, [&] { return std::exchange(most, kLongest); });
      EXPECT_FALSE(reader.broken);
      EXPECT_EQ(reader.skipped, skips ? std::vector{word_at(message, 0)} : std::vector<std::uint32_t>{});
      std::vector<Bytes> records = {message, words({77})};
      if (skips) records.erase(records.begin());
      EXPECT_EQ(reader.records, records);
    }
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
