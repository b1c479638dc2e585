// SPDX-License-Identifier: Apache-2.0
//
// VERIFY and NVERIFY compare the attributes that GETATTR has returned through a gateway. The server does not
// know of the gateway's changes.
#include <gtest/gtest.h>

#include "dataplane/ulb/nfs4_comparisons.h"
#include "tests/unit/ulb/compounds.h"

namespace sluice::ulb {
namespace {

using test::Bytes;
using test::Writer;

constexpr std::uint32_t kGetAttr = 9, kNVerify = 17, kReadDir = 26, kVerify = 37;
constexpr std::uint32_t kMebibyte = 1 << 20;
constexpr std::uint64_t kServers = 64ull * kMebibyte;
constexpr std::uint32_t kSupported = 1, kFsLocations = 1u << 24, kSizes = 3u << 30;
/// RETENTEVT_GET, in the third word.
constexpr std::uint32_t kUnsupported = 1u << 7;
/// SUPPATTR_EXCLCREAT, in the third word.
constexpr std::uint32_t kExclCreat = 1u << 11;

struct Gateway {
  explicit Gateway(const service::Withheld& withheld = {}) : compared({.data_bytes = kMebibyte}, withheld) {}

  void announce(const Bytes& results) { compared.note(nfs4_binding(), results, nullptr); }
  /// Returns the call that the server receives for `call`.
  Bytes passed(Bytes call) const {
    compared.restore(nfs4_binding(), kNfs4Compound, call);
    return call;
  }

  ComparedAttributes compared;
};

/// Puts the comparison of a fattr4 between two other operations.
Bytes comparison(std::uint32_t number, std::initializer_list<std::uint32_t> bitmap, const Writer& values,
                 std::uint32_t minor = 1) {
  Writer call;
  call.call(3, minor).w({22}).o(28).w({number, static_cast<std::uint32_t>(bitmap.size())}).w(bitmap);
  call.o(values).w({10});
  return call.bytes();
}
Bytes size_comparison(std::uint64_t read, std::uint64_t write, std::uint32_t number = kVerify) {
  Writer values;
  values.d(4096).d(read).d(write);
  return comparison(number, {1u << 4 | kSizes}, values);
}
Bytes get_attr_results(std::initializer_list<std::uint32_t> bitmap, const Writer& values) {
  Writer results;
  results.reply(1).w({kGetAttr, 0, static_cast<std::uint32_t>(bitmap.size())}).w(bitmap).o(values);
  return results.bytes();
}

TEST(Comparisons, a_size_that_was_lowered_is_the_servers_own) {
  Gateway gateway;
  gateway.announce(get_attr_results({1u << 4 | kSizes}, Writer().d(4096).d(kServers).d(2 * kServers)));
  for (const std::uint32_t number : {kVerify, kNVerify})
    EXPECT_EQ(gateway.passed(size_comparison(kMebibyte, kMebibyte, number)),
              size_comparison(kServers, 2 * kServers, number));
}

TEST(Comparisons, a_size_that_was_not_lowered_stays) {
  Gateway gateway;
  EXPECT_EQ(gateway.passed(size_comparison(kMebibyte, kMebibyte)), size_comparison(kMebibyte, kMebibyte));
  gateway.announce(get_attr_results({kSizes}, Writer().d(kServers).d(kServers)));
  EXPECT_EQ(gateway.passed(size_comparison(65536, kMebibyte - 1)), size_comparison(65536, kMebibyte - 1));
  gateway.announce(get_attr_results({kSizes}, Writer().d(kMebibyte).d(65536)));
  EXPECT_EQ(gateway.passed(size_comparison(kMebibyte, kMebibyte)), size_comparison(kMebibyte, kMebibyte));
}

TEST(Comparisons, a_size_that_no_client_is_shown_differs) {
  Gateway gateway;
  EXPECT_EQ(gateway.passed(size_comparison(kServers, ~0ull)), size_comparison(1, 1));
  gateway.announce(get_attr_results({kSizes}, Writer().d(kServers).d(kServers)));
  EXPECT_EQ(gateway.passed(size_comparison(kServers, kMebibyte + 1)), size_comparison(1, 1));
}

TEST(Comparisons, entries_of_directories_announce_sizes_as_well) {
  Gateway gateway;
  Writer results;
  results.reply(1)
      .w({kReadDir, 0})
      .d(0)
      .w({1})
      .d(3)
      .o(5)
      .w({1, kSizes})
      .o(Writer().d(kServers).d(8))
      .w({0, 1});
  gateway.announce(results.bytes());
  EXPECT_EQ(gateway.passed(size_comparison(kMebibyte, kMebibyte)), size_comparison(kServers, kMebibyte));
}

TEST(Comparisons, attributes_that_are_withheld_are_not_supported) {
  const Gateway gateway;
  for (const std::uint32_t number : {kVerify, kNVerify}) {
    // The shortest values have no components, no locations, and no layout types.
    EXPECT_EQ(gateway.passed(comparison(number, {kFsLocations}, Writer().w({0, 0}), 0)),
              comparison(number, {0, 0, kUnsupported}, Writer(), 0));
    EXPECT_EQ(gateway.passed(comparison(number, {2, 1u << 30}, Writer().w({1, 0}))),
              comparison(number, {0, 0, kUnsupported}, Writer().w({0})));
    EXPECT_EQ(gateway.passed(comparison(number, {kFsLocations, 0, 0, 0}, Writer().w({0, 0}))),
              comparison(number, {0, 0, kUnsupported}, Writer().w({0, 0, 0})));
  }
  const Gateway open({.pnfs = false, .referrals = false});
  const Bytes call = comparison(kVerify, {kFsLocations}, Writer().w({0, 0}));
  EXPECT_EQ(open.passed(call), call);
}

TEST(Comparisons, supported_attributes_are_compared_with_those_that_are_withheld) {
  Gateway gateway;
  const auto compared = [](std::uint32_t first, std::uint32_t second, std::uint32_t third,
                           std::uint32_t minor) {
    return comparison(kVerify, {kSupported}, Writer().w({3, first, second, third}), minor);
  };
  EXPECT_EQ(gateway.passed(compared(7, 8, kExclCreat, 1)), compared(7, 8, kExclCreat, 1));
  gateway.announce(
      get_attr_results({kSupported}, Writer().w({3, kFsLocations | 7, 1u << 30 | 8, kExclCreat | 6})));
  gateway.announce(get_attr_results({kSupported}, Writer().w({2, kFsLocations | 7, 8})));
  EXPECT_EQ(gateway.passed(compared(7, 8, kExclCreat, 1)),
            compared(kFsLocations | 7, 1u << 30 | 8, kExclCreat | 6, 1));
  EXPECT_EQ(gateway.passed(compared(7, 8, 0, 0)), compared(kFsLocations | 7, 8, 0, 0))
      << "version 4.0 has others";
}

TEST(Comparisons, supported_attributes_that_no_client_is_shown_differ) {
  Gateway gateway;
  gateway.announce(get_attr_results({kSupported}, Writer().w({1, kFsLocations | 7})));
  EXPECT_EQ(gateway.passed(comparison(kVerify, {kSupported}, Writer().w({1, kFsLocations | 7}), 0)),
            comparison(kVerify, {kSupported}, Writer().w({1, kFsLocations | 6}), 0));
}

TEST(Comparisons, what_cannot_be_read_stays) {
  Gateway gateway;
  gateway.announce(get_attr_results({kSizes}, Writer().d(kServers).d(kServers)));
  const Bytes whole = size_comparison(kMebibyte, kMebibyte);
  for (std::size_t bytes = 0; bytes < whole.size() - 8; bytes += 4) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_EQ(gateway.passed(part), part) << bytes;
  }
  const Bytes short_values = comparison(kVerify, {kSizes}, Writer().w({0}));
  EXPECT_EQ(gateway.passed(short_values), short_values);
  const Bytes short_locations = comparison(kVerify, {kFsLocations}, Writer().w({0}));
  EXPECT_EQ(gateway.passed(short_locations), short_locations);
  const Bytes other = comparison(kGetAttr, {kSizes}, Writer().d(kMebibyte));
  EXPECT_EQ(gateway.passed(other), other);
  gateway.announce(get_attr_results({kSizes}, Writer().w({0})));
  EXPECT_EQ(gateway.passed(size_comparison(kMebibyte, kMebibyte)), size_comparison(kServers, kServers))
      << "values that end early announce nothing";
}

}  // namespace
}  // namespace sluice::ulb
