// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/responder/responder_context.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string_view>

#include "dataplane/base/setup_error.h"

namespace sluice::rpcrdma {
namespace {

constexpr std::array<std::string_view, 2> kNames{"NULL", "ONE"};

class OfProgram final : public service::Service {
 public:
  OfProgram(std::uint32_t program, std::uint32_t version)
      : binding_{.program = program, .version = version, .name = "test", .procedure_names = kNames} {}
  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override {
    return call.complete(rpc::AcceptStat::Success), service::Execution::Started;
  }

 private:
  const service::Binding binding_;
};

TEST(ServiceTable, a_program_is_served_at_each_port_by_its_own) {
  ServiceTable table;
  OfProgram main(7, 1);
  OfProgram other(7, 2);
  OfProgram everywhere(8, 1);
  table.add(main, 0);
  table.add(other, 20050);
  table.add(everywhere, 0);
  table.add(everywhere, 20050);
  EXPECT_EQ(table.find(7, 1, 0)->service, &main);
  EXPECT_EQ(table.find(7, 1, 20050), nullptr);
  EXPECT_EQ(table.find(7, 2, 20050)->service, &other);
  EXPECT_EQ(table.find(8, 1, 20050)->service, &everywhere);
  EXPECT_EQ(table.find(8, 1, 20051), nullptr);
  EXPECT_EQ(table.versions_of(7, 0)->high, 1u);
  EXPECT_EQ(table.versions_of(7, 20050)->low, 2u);
  EXPECT_FALSE(table.versions_of(7, 20051));
  EXPECT_EQ(table.all().size(), 3u) << "each has its background work once";
}

TEST(ServiceTable, a_service_is_found_while_it_is_offered) {
  ServiceTable table;
  OfProgram first(7, 1);
  OfProgram later(7, 1);
  OfProgram last(9, 1);
  table.add(first, 20050);
  table.add_unoffered(later);
  table.add(last, 0);
  for (const std::uint16_t port : std::array<std::uint16_t, 3>{0, 20051, 65535})
    EXPECT_EQ(table.find(7, 1, port), nullptr) << port;
  EXPECT_EQ(table.all().size(), 3u) << "it has its background work before";
  EXPECT_TRUE(table.offer(later, 20051));
  EXPECT_TRUE(table.offer(later, 20052));
  EXPECT_EQ(table.find(7, 1, 20051)->service, &later);
  EXPECT_EQ(table.find(7, 1, 20052)->service, &later);
  EXPECT_EQ(table.find(7, 1, 20050)->service, &first);
  EXPECT_TRUE(table.versions_of(7, 20051));
  table.withdraw(first);
  table.withdraw(later);
  for (const std::uint16_t port : std::array<std::uint16_t, 3>{20050, 20051, 20052})
    EXPECT_EQ(table.find(7, 1, port), nullptr) << port;
  EXPECT_EQ(table.find(9, 1, 0)->service, &last) << "others stay";
  EXPECT_EQ(table.all().size(), 3u);
}

TEST(ServiceTable, a_full_table_offers_no_further_service) {
  ServiceTable table;
  OfProgram service(7, 1);
  table.add_unoffered(service);
  for (std::uint32_t port = 0; port < ServiceTable::kMaxServices; ++port)
    ASSERT_TRUE(table.offer(service, port));
  EXPECT_FALSE(table.offer(service, ServiceTable::kMaxServices));
  EXPECT_EQ(table.find(7, 1, ServiceTable::kMaxServices), nullptr);
  table.withdraw(service);
  EXPECT_TRUE(table.offer(service, 0)) << "there is room again";
}

TEST(ServiceTable, calls_of_a_program_are_counted_together_whatever_the_port) {
  ServiceTable table;
  OfProgram main(7, 1);
  OfProgram other(7, 1);
  OfProgram newer(7, 2);
  table.add(main, 0);
  table.add(other, 20050);
  table.add(newer, 20050);
  const auto calls = std::make_unique<segment::CallTable>();
  table.describe(*calls);
  EXPECT_EQ(calls->procedures.load(), 1u + 2 * kNames.size());
  EXPECT_EQ(table.find(7, 1, 0)->place_of(1), table.find(7, 1, 20050)->place_of(1));
  EXPECT_NE(table.find(7, 1, 0)->place_of(1), table.find(7, 2, 20050)->place_of(1));
  EXPECT_EQ(table.find(7, 1, 20050)->place_of(2), segment::kOtherProcedure);
}

TEST(ServiceTable, more_than_fit_are_refused_at_setup) {
  ServiceTable table;
  OfProgram program(7, 1);
  for (std::uint32_t i = 0; i < ServiceTable::kMaxServices; ++i)
    table.add(program, static_cast<std::uint16_t>(i));
  EXPECT_THROW(table.add(program, 999), SetupError);
}

}  // namespace
}  // namespace sluice::rpcrdma
