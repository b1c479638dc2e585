// SPDX-License-Identifier: Apache-2.0
//
// The duplicate request cache alone: lookups, evictions when it is full, and concurrent use by reactors.
#include "dataplane/gateway/tcp_upstream/duplicate_request_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

namespace sluice::tcp_upstream {
namespace {

using Seen = DuplicateRequestCache::Seen;
using Bytes = std::vector<std::byte>;

constexpr PeerAddress kClient = PeerAddress::from_ipv4(192, 0, 2, 1);
constexpr std::uint64_t kSecond = 1'000'000'000;

PeerAddress client(std::uint32_t number) {
  return PeerAddress::from_ipv4(192, 0, static_cast<std::uint8_t>(number >> 8),
                                static_cast<std::uint8_t>(number));
}
RequestKey key(std::uint32_t xid, const PeerAddress& from = kClient) {
  return {.client = from,
          .xid = xid,
          .program = 100003,
          .version = 3,
          .procedure = 9,
          .bytes = 100,
          .checksum = 5};
}
Bytes text(std::uint32_t number, std::size_t bytes = 100) {
  return Bytes(bytes, static_cast<std::byte>(number));
}

struct Cache : testing::Test {
  DuplicateRequestCache cache{64, 4};
  RequestHost* host = cache.enter(kClient);

  DuplicateRequestCache::Entry* add(const RequestKey& wanted, RequestHost& from) {
    const auto found = cache.look_up(wanted, from, now_ns);
    EXPECT_EQ(found.seen, Seen::New);
    evicted += found.evicted;
    return found.entry;
  }
  void add_answered(std::uint32_t xid, RequestHost& from, const PeerAddress& who = kClient) {
    cache.answer(*add(key(xid, who), from), text(xid), now_ns++);
  }
  bool known(std::uint32_t xid, const PeerAddress& who = kClient) {
    RequestHost* const from = cache.enter(who);
    const auto found = cache.look_up(key(xid, who), *from, now_ns);
    cache.release(*from);
    if (found.seen == Seen::New) cache.drop(*found.entry);
    if (found.seen == Seen::Answered) cache.release(*found.entry);
    return found.seen == Seen::Answered;
  }

  std::uint64_t now_ns = 1000 * kSecond;
  std::uint32_t evicted = 0;
};

TEST_F(Cache, a_reply_expires_and_a_call_that_matches_it_is_a_new_one) {
  add_answered(1, *host);
  now_ns += kKeptNs - 2;
  EXPECT_TRUE(known(1));
  now_ns += 2;
  EXPECT_FALSE(known(1));
  add_answered(1, *host);
  EXPECT_TRUE(known(1)) << "its own reply is found beside the expired one";
}

TEST_F(Cache, a_call_without_a_reply_does_not_expire) {
  add(key(1), *host);
  now_ns += 10 * kKeptNs;
  EXPECT_EQ(cache.look_up(key(1), *host, now_ns).seen, Seen::Outstanding);
}

TEST_F(Cache, a_call_is_new_then_outstanding_then_answered) {
  DuplicateRequestCache::Entry* const entry = add(key(1), *host);
  const Bytes call = text(7, 40);
  EXPECT_TRUE(cache.keep_call(*entry, call));
  EXPECT_TRUE(
      std::equal(call.begin(), call.end(), cache.call_of(*entry).begin(), cache.call_of(*entry).end()));
  EXPECT_EQ(cache.look_up(key(1), *host, now_ns).seen, Seen::Outstanding);
  const Bytes reply = text(8);
  cache.answer(*entry, reply, now_ns);
  for (int i = 0; i < 2; ++i) {
    const auto found = cache.look_up(key(1), *host, now_ns);
    ASSERT_EQ(found.seen, Seen::Answered);
    const auto kept = cache.reply_of(*found.entry);
    EXPECT_TRUE(std::equal(reply.begin(), reply.end(), kept.begin(), kept.end()));
    cache.release(*found.entry);
  }
}

TEST_F(Cache, a_call_that_is_dropped_is_new_again) {
  cache.drop(*add(key(1), *host));
  EXPECT_EQ(host->entries.load(), 0u);
  add(key(1), *host);
  EXPECT_EQ(host->entries.load(), 1u);
}

TEST_F(Cache, each_part_of_the_key_counts) {
  const RequestKey base = key(1);
  add(base, *host);
  std::array<RequestKey, 7> others;
  others.fill(base);
  others[0].client.bytes[15] ^= 1;
  ++others[1].xid;
  ++others[2].program;
  ++others[3].version;
  ++others[4].procedure;
  ++others[5].bytes;
  ++others[6].checksum;
  for (const RequestKey& other : others) add(other, *host);
}

TEST_F(Cache, the_checksum_is_of_what_follows_the_xid) {
  Bytes first = text(1, 600);
  Bytes second = first;
  second[0] = std::byte{9};
  EXPECT_EQ(cache.checksum(first), cache.checksum(second));
  second[4] = std::byte{9};
  EXPECT_NE(cache.checksum(first), cache.checksum(second));
}

TEST_F(Cache, a_message_that_is_too_long_is_not_kept) {
  DuplicateRequestCache::Entry* const entry = add(key(1), *host);
  EXPECT_FALSE(cache.keep_call(*entry, text(1, kKeptBytes + 1)));
  EXPECT_TRUE(cache.call_of(*entry).empty());
  EXPECT_TRUE(cache.keep_call(*entry, text(1, kKeptBytes)));
}

/// A cache with one set, so that every call competes with every other.
struct OneSet : Cache {
  OneSet() {
    cache.release(*host);
    host = small.enter(kClient);
  }
  DuplicateRequestCache small{kCacheWays, 4};
};

TEST_F(OneSet, the_oldest_reply_gives_way) {
  for (std::uint32_t xid = 0; xid < kCacheWays; ++xid) {
    const auto found = small.look_up(key(xid), *host, now_ns);
    ASSERT_EQ(found.seen, Seen::New);
    small.answer(*found.entry, text(xid), now_ns++);
  }
  const auto more = small.look_up(key(100), *host, now_ns);
  ASSERT_EQ(more.seen, Seen::New);
  EXPECT_TRUE(more.evicted);
  EXPECT_EQ(small.look_up(key(1), *host, now_ns).seen, Seen::Answered);
  EXPECT_EQ(small.look_up(key(0), *host, now_ns).seen, Seen::New) << "it was the oldest";
}

TEST_F(OneSet, what_nobody_asks_for_any_more_is_no_loss) {
  for (std::uint32_t xid = 0; xid < kCacheWays; ++xid) {
    const auto found = small.look_up(key(xid), *host, now_ns);
    small.answer(*found.entry, text(xid), now_ns);
  }
  EXPECT_FALSE(small.look_up(key(100), *host, now_ns + kKeptNs).evicted);
}

TEST_F(OneSet, what_is_outstanding_or_being_read_never_gives_way) {
  std::vector<DuplicateRequestCache::Entry*> entries;
  for (std::uint32_t xid = 0; xid < kCacheWays; ++xid)
    entries.push_back(small.look_up(key(xid), *host, now_ns).entry);
  EXPECT_EQ(small.look_up(key(100), *host, now_ns).seen, Seen::Full);
  small.answer(*entries[0], text(0), now_ns);
  const auto read = small.look_up(key(0), *host, now_ns);
  ASSERT_EQ(read.seen, Seen::Answered);
  EXPECT_EQ(small.look_up(key(100), *host, now_ns).seen, Seen::Full);
  small.release(*read.entry);
  EXPECT_EQ(small.look_up(key(100), *host, now_ns).seen, Seen::New);
}

TEST_F(OneSet, a_client_that_asks_for_much_takes_nothing_from_the_others) {
  const PeerAddress modest = client(77);
  RequestHost* const other = small.enter(modest);
  const auto answered = [&](std::uint32_t xid, const PeerAddress& who, RequestHost& from) {
    const auto found = small.look_up(key(xid, who), from, now_ns);
    ASSERT_EQ(found.seen, Seen::New);
    small.answer(*found.entry, text(xid), now_ns++);
  };
  for (std::uint32_t xid = 0; xid < kCacheWays / 2; ++xid) answered(xid, modest, *other);
  for (std::uint32_t xid = 0; xid < 1000; ++xid) answered(xid, kClient, *host);
  for (std::uint32_t xid = 0; xid < kCacheWays / 2; ++xid)
    EXPECT_EQ(small.look_up(key(xid, modest), *other, now_ns).seen, Seen::Answered) << xid;
}

TEST_F(OneSet, what_gives_way_is_no_longer_its_clients) {
  for (std::uint32_t xid = 0; xid < 3 * kCacheWays; ++xid) {
    const auto found = small.look_up(key(xid), *host, now_ns);
    ASSERT_EQ(found.seen, Seen::New);
    small.answer(*found.entry, text(xid), now_ns++);
  }
  EXPECT_EQ(host->entries.load(), kCacheWays);
}

TEST_F(OneSet, a_clients_part_grows_when_others_have_gone) {
  RequestHost* const modest = small.enter(client(77));
  const auto answered = [&](std::uint32_t xid, const PeerAddress& who, RequestHost& from) {
    const auto found = small.look_up(key(xid, who), from, now_ns);
    ASSERT_EQ(found.seen, Seen::New);
    small.answer(*found.entry, text(xid), now_ns++);
  };
  for (std::uint32_t xid = 0; xid < 3; ++xid) answered(xid, client(77), *modest);
  for (std::uint32_t xid = 0; xid < kCacheWays - 3; ++xid) answered(xid, kClient, *host);
  small.release(*modest);
  answered(100, kClient, *host);
  EXPECT_EQ(small.look_up(key(0), *host, now_ns).seen, Seen::Answered) << "it may have all";
}

TEST_F(Cache, a_host_is_one_as_long_as_somebody_uses_it) {
  EXPECT_EQ(cache.enter(kClient), host);
  EXPECT_EQ(host->users.load(), 2u);
  RequestHost* const other = cache.enter(client(77));
  EXPECT_NE(other, host);
  cache.release(*host);
  cache.release(*host);
  EXPECT_EQ(host->users.load(), 0u);
  for (std::uint32_t i = 0; i < 500; ++i) {
    RequestHost* const passing = cache.enter(client(1000 + i));
    ASSERT_NE(passing, nullptr) << i;
    ASSERT_NE(passing, other);
    cache.release(*passing);
  }
}

/// Reactors that retransmit each other's calls. Each call has one execution at a time, and a reactor that
/// finds a reply finds the correct one.
TEST(CacheOfReactors, a_call_has_one_execution_at_a_time_whoever_asks) {
  constexpr std::uint32_t kXids = 8;
  constexpr std::uint32_t kRounds = 20'000;
  DuplicateRequestCache cache(kCacheWays, 4);
  std::array<std::atomic<int>, kXids> executing{};
  std::atomic<std::uint64_t> executed{0};
  std::atomic<std::uint64_t> replayed{0};
  std::atomic<std::uint64_t> wrong{0};
  const auto reactor = [&](std::uint32_t number) {
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      RequestHost* const host = cache.enter(kClient);
      if (host == nullptr) continue;
      const std::uint32_t xid = (i * 7 + number) % kXids;
      const auto found = cache.look_up(key(xid), *host, i);
      if (found.seen == Seen::New) {
        wrong += executing[xid].fetch_add(1) != 0;
        static_cast<void>(cache.keep_call(*found.entry, text(200)));
        executing[xid].fetch_sub(1);
        ++executed;
        if (i % 3 == 0)
          cache.drop(*found.entry);
        else
          cache.answer(*found.entry, text(xid), i);
      } else if (found.seen == Seen::Answered) {
        for (const std::byte byte : cache.reply_of(*found.entry))
          wrong += byte != static_cast<std::byte>(xid);
        ++replayed;
        cache.release(*found.entry);
      }
      if (i % 50 == 0) {  // evicts entries
        for (std::uint32_t other = 0; other < kCacheWays; ++other) {
          const auto filler = cache.look_up(key(1000 + i + other), *host, i);
          if (filler.seen == Seen::New) cache.answer(*filler.entry, text(99), i);
          if (filler.seen == Seen::Answered) cache.release(*filler.entry);
        }
      }
      cache.release(*host);
    }
  };
  std::thread first(reactor, 0);
  std::thread second(reactor, 1);
  reactor(2);
  first.join();
  second.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(executed.load(), 0u);
  EXPECT_GT(replayed.load(), 0u);
}

/// Spins, so that both threads continue at the same moment, but yields the processor if there is only one.
void await(const std::atomic<std::uint32_t>& counter, std::uint32_t least) {
  for (int spins = 0; counter.load() < least; ++spins)
    if (spins > 50'000) std::this_thread::yield();
}

/// Two reactors that execute `do_it` at the same moment, `rounds` times.
template <typename Do>
void at_once(std::uint32_t rounds, const Do& do_it) {
  std::atomic<std::uint32_t> arrived{0};
  const auto reactor = [&](std::uint32_t number) {
    for (std::uint32_t round = 0; round < rounds; ++round) {
      arrived.fetch_add(1);
      await(arrived, 2 * round + 2);
      do_it(number, round);
    }
  };
  std::thread other(reactor, 1);
  reactor(0);
  other.join();
}

TEST(CacheOfReactors, of_two_that_bring_a_call_at_the_same_moment_one_executes_it_at_most) {
  constexpr std::uint32_t kRounds = 10'000;
  DuplicateRequestCache cache(64, 4);
  RequestHost* const host = cache.enter(kClient);
  std::array<std::vector<DuplicateRequestCache::Found>, 2> found{
      std::vector<DuplicateRequestCache::Found>(kRounds), std::vector<DuplicateRequestCache::Found>(kRounds)};
  std::array<std::atomic<std::uint32_t>, 2> looked{};
  at_once(kRounds, [&](std::uint32_t number, std::uint32_t round) {
    found[number][round] = cache.look_up(key(round), *host, round);
    looked[number].store(round + 1);
    await(looked[1 - number], round + 1);
    if (found[number][round].seen == Seen::New) cache.drop(*found[number][round].entry);
  });
  for (std::uint32_t round = 0; round < kRounds; ++round)
    ASSERT_FALSE(found[0][round].seen == Seen::New && found[1][round].seen == Seen::New) << round;
}

TEST(CacheOfReactors, a_host_that_two_enter_at_the_same_moment_is_one) {
  constexpr std::uint32_t kRounds = 10'000;
  DuplicateRequestCache cache(64, 4);
  std::array<std::vector<RequestHost*>, 2> entered{std::vector<RequestHost*>(kRounds),
                                                   std::vector<RequestHost*>(kRounds)};
  std::array<std::atomic<std::uint32_t>, 2> done{};
  at_once(kRounds, [&](std::uint32_t number, std::uint32_t round) {
    RequestHost* const host = cache.enter(client(round % 1000));
    entered[number][round] = host;
    done[number].store(round + 1);
    await(done[1 - number], round + 1);
    if (host != nullptr) cache.release(*host);
  });
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const bool both = entered[0][round] != nullptr && entered[1][round] != nullptr;
    ASSERT_TRUE(!both || entered[0][round] == entered[1][round]) << round;
  }
}

}  // namespace
}  // namespace sluice::tcp_upstream
