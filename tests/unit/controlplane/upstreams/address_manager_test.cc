// SPDX-License-Identifier: Apache-2.0
#include "controlplane/upstreams/address_manager.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>

#include "tests/unit/controlplane/onc_rpc/rpc_lab.h"

namespace sluice::upstreams {
namespace {

using namespace onc_rpc::lab;

segment::UpstreamConfig upstream(const char* name, std::initializer_list<const char*> hosts) {
  segment::UpstreamConfig config;
  std::strcpy(config.name, name);
  config.route_count = 1;
  for (const char* host : hosts) std::strcpy(config.hosts[config.host_count++].data(), host);
  return config;
}

/// Returns the text of the list that the segment has under a name, or "-" if there is none.
std::string shown(const segment::SharedUpstreamAddresses& shared, const char* name) {
  const auto table = shared.read();
  const auto* const list = table ? segment::addresses_of(*table, name) : nullptr;
  if (list == nullptr) return "-";
  std::string text;
  for (std::uint32_t i = 0; i < list->count; ++i) text += to_string(list->addresses[i].address) + ' ';
  return text;
}

struct Keeper : testing::Test {
  std::atomic<std::uint64_t> failures{0};
  std::shared_ptr<std::atomic<int>> asked = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<std::atomic<bool>> name_server_fails = std::make_shared<std::atomic<bool>>(false);
  segment::SharedUpstreamAddresses shared{};
  AddressService service{{upstream("a", {"192.0.2.1", "192.0.2.2"}), upstream("b", {"nas"})},
                         segment::Driver::SoftRoce,
                         shared,
                         [this] { return failures.load(); },
                         [asked = asked, fails = name_server_fails](const std::string&) {
                           ++*asked;
                           if (*fails) return LookupResult{{}, "nobody knows it"};
                           return LookupResult{{PeerAddress::from_ipv4(192, 0, 2, 9)}, {}};
                         }};
  std::uint64_t now_ns = kStartNs;
};

TEST_F(Keeper, addresses_are_there_at_once_and_names_when_they_are_resolved) {
  EXPECT_EQ(shown(shared, "a"), "192.0.2.1 192.0.2.2 ");
  EXPECT_EQ(shown(shared, "b"), "");
  EXPECT_EQ(shown(shared, "c"), "-");
  turn_until(service, now_ns, [&] { return shown(shared, "b") == "192.0.2.9 "; });
}

TEST_F(Keeper, a_new_configuration_is_taken_up) {
  service.reconfigure({upstream("b", {"192.0.2.3"})});
  now_ns += kLookAroundNs;
  turn_until(service, now_ns, [&] { return shown(shared, "b") == "192.0.2.3 "; });
  EXPECT_EQ(shown(shared, "a"), "-");
}

TEST_F(Keeper, a_reload_while_the_name_server_fails_takes_no_address_away) {
  turn_until(service, now_ns, [&] { return shown(shared, "b") == "192.0.2.9 "; });
  *name_server_fails = true;
  now_ns += kLookupNs;
  turn_until(service, now_ns, [&] { return *asked == 2; });
  service.reconfigure({upstream("c", {"192.0.2.4", "nas"}), upstream("b", {"nas"})});
  now_ns += kLookupNs;
  turn_until(service, now_ns, [&] { return shown(shared, "c") != "-"; });
  EXPECT_EQ(shown(shared, "b"), "192.0.2.9 ");
  EXPECT_EQ(shown(shared, "c"), "192.0.2.4 192.0.2.9 ") << "another upstream of the same host knows it too";
}

TEST_F(Keeper, a_reload_with_another_name_keeps_nothing_of_the_former) {
  turn_until(service, now_ns, [&] { return shown(shared, "b") == "192.0.2.9 "; });
  *name_server_fails = true;
  service.reconfigure({upstream("b", {"nas2"}), upstream("c", {})});
  now_ns += kLookAroundNs;
  turn_until(service, now_ns, [&] { return shown(shared, "c") != "-"; });
  EXPECT_EQ(shown(shared, "b"), "");
}

TEST_F(Keeper, names_are_looked_up_again_when_connections_fail) {
  turn_until(service, now_ns, [&] { return shown(shared, "b") == "192.0.2.9 "; });
  now_ns += kUrgentLookupNs;
  turns(service, now_ns);
  EXPECT_EQ(*asked, 1);
  ++failures;
  now_ns += kLookAroundNs;
  turn_until(service, now_ns, [&] { return *asked == 2; });
}

TEST(AnsweringAddress, the_first_that_answers_or_the_first) {
  segment::SharedUpstreamAddresses shared{};
  EXPECT_FALSE(segment::answering_address(shared, "a"));
  segment::UpstreamAddressTable table{};
  std::strcpy(table[3].name, "a");
  shared.write(table);
  EXPECT_FALSE(segment::answering_address(shared, "a"));
  table[3].count = 2;
  table[3].addresses[0].address = kFour;
  table[3].addresses[1].address = kSix;
  shared.write(table);
  EXPECT_EQ(segment::answering_address(shared, "a"), kFour);
  table[3].addresses[1].answers = 1;
  shared.write(table);
  EXPECT_EQ(segment::answering_address(shared, "a"), kSix);
}

}  // namespace
}  // namespace sluice::upstreams
