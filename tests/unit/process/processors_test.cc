// SPDX-License-Identifier: Apache-2.0
//
// Processors of the reactors: selected from the data plane's affinity mask; processors outside the mask are
// refused with an error.
#include "dataplane/process/start.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>

#include "dataplane/base/processor_list.h"
#include "dataplane/base/setup_error.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

cpu_set_t mask(std::initializer_list<int> processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int each : processors) CPU_SET(each, &set);
  return set;
}

/// Two NUMA nodes with two cores of two threads each: CPUs 0 and 4 are the first core, 3 and 7 the last.
class ProcessorsTest : public testing::Test {
 protected:
  ProcessorsTest() {
    for (int cpu = 0; cpu < 8; ++cpu) {
      const std::string folder = system_ + "/cpu/cpu" + std::to_string(cpu);
      std::filesystem::create_directories(folder + "/topology");
      std::filesystem::create_directories(folder + (cpu % 4 < 2 ? "/node0" : "/node1"));
      std::ofstream(folder + "/topology/thread_siblings_list") << cpu % 4 << ',' << cpu % 4 + 4 << '\n';
    }
  }
  ~ProcessorsTest() override { std::filesystem::remove_all(system_); }

  std::vector<std::uint32_t> chosen(std::initializer_list<int> allowed, std::uint32_t reactors) {
    segment::ConfigBlock config;
    config.reactors = reactors;
    place_reactors(config, mask(allowed), system_);
    nodes_.assign(config.numa_nodes.begin(), config.numa_nodes.begin() + reactors);
    return {config.cpus.begin(), config.cpus.begin() + reactors};
  }
  std::string refusal(std::initializer_list<int> allowed, std::initializer_list<std::uint32_t> named) {
    segment::ConfigBlock config;
    config.reactors = static_cast<std::uint32_t>(named.size());
    config.choose_cpus = 0;
    std::copy(named.begin(), named.end(), config.cpus.begin());
    try {
      place_reactors(config, mask(allowed), system_);
    } catch (const SetupError& error) {
      return error.what();
    }
    nodes_.assign(config.numa_nodes.begin(), config.numa_nodes.begin() + config.reactors);
    return "none";
  }

  using Numbers = std::vector<std::uint32_t>;
  const std::string system_ = "/tmp/" + unique_name("processors");
  Numbers nodes_;
};

TEST_F(ProcessorsTest, reactors_have_cores_of_their_own_and_leave_the_first_one) {
  EXPECT_EQ(chosen({0, 1, 2, 3, 4, 5, 6, 7}, 1), (Numbers{1}));
  EXPECT_EQ(chosen({0, 1, 2, 3, 4, 5, 6, 7}, 3), (Numbers{1, 2, 3}));
  EXPECT_EQ(nodes_, (Numbers{0, 1, 1}));
  EXPECT_EQ(chosen({0, 1, 2, 3, 4, 5, 6, 7}, 4), (Numbers{3, 2, 1, 0}));
  EXPECT_EQ(chosen({0, 1, 2, 3, 4, 5, 6, 7}, 5), (Numbers{3, 2, 1, 0, 4}));
}

TEST_F(ProcessorsTest, none_is_chosen_outside_of_the_affinity_mask) {
  EXPECT_EQ(chosen({5}, 1), (Numbers{5}));
  EXPECT_EQ(chosen({0}, 1), (Numbers{0}));
  EXPECT_EQ(chosen({4, 6}, 1), (Numbers{6}));
  EXPECT_EQ(chosen({0, 4}, 2), (Numbers{0, 4}));
  EXPECT_THROW(chosen({0, 1}, 3), SetupError);
  EXPECT_THROW(chosen({}, 1), SetupError);
}

TEST_F(ProcessorsTest, a_named_one_outside_of_the_affinity_mask_is_refused_with_a_sentence) {
  EXPECT_EQ(refusal({2, 3}, {3, 2}), "none");
  EXPECT_EQ(nodes_, (Numbers{1, 1}));
  const std::string said = refusal({0, 2, 3}, {2, 1});
  EXPECT_EQ(said.find("cpus in [reactor] names processor 1, and the data plane may run on 0,2-3 only. "), 0u)
      << said;
  EXPECT_NE(refusal({0}, {4095}).find("DPDK supports processors up to "), std::string::npos);
}

TEST_F(ProcessorsTest, a_machine_that_describes_nothing_has_cores_of_one_thread) {
  const auto found = describe_processors(mask({0, 2}), system_ + "/nothing");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].cpu, 2u);
  EXPECT_EQ(found[1].core, 2u);
  EXPECT_EQ(found[1].numa_node, 0u);
}

TEST(ProcessorList, is_written_as_the_kernel_writes_it) {
  EXPECT_EQ(to_text(mask({})), "none");
  EXPECT_EQ(to_text(mask({3})), "3");
  EXPECT_EQ(to_text(mask({0, 1, 2, 5, 7, 8})), "0-2,5,7-8");
  EXPECT_EQ(to_text(own_processors()), to_text(own_processors()));
}

}  // namespace
}  // namespace sluice::process
