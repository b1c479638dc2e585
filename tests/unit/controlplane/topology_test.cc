// SPDX-License-Identifier: Apache-2.0
#include "controlplane/topology.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

namespace sluice {
namespace {

cpu_set_t mask_of(pid_t thread) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(::sched_getaffinity(thread, sizeof mask, &mask), 0);
  return mask;
}

TEST(Topology, this_machine_has_processors) {
  EXPECT_FALSE(topology::processors().empty());
}

TEST(OwnProcessors, all_threads_keep_off_those_of_reactors_until_there_is_no_other) {
  const cpu_set_t before = mask_of(0);
  const topology::OwnProcessors own;
  std::promise<pid_t> started;
  std::promise<void> ended;
  std::thread other([&] {
    started.set_value(::gettid());
    ended.get_future().wait();
  });
  const pid_t its_number = started.get_future().get();
  std::vector<std::uint32_t> all;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) all.push_back(cpu);
  own.keep_off({all[0]});
  for (const pid_t thread : {pid_t{0}, its_number}) {
    const cpu_set_t mask = mask_of(thread);
    EXPECT_EQ(CPU_ISSET(all[0], &mask) != 0, all.size() == 1);
    EXPECT_EQ(CPU_COUNT(&mask), static_cast<int>(std::max<std::size_t>(1, all.size() - 1)));
  }
  own.keep_off(all);
  cpu_set_t mask = mask_of(its_number);
  EXPECT_TRUE(CPU_EQUAL(&mask, &before));
  own.keep_off({CPU_SETSIZE + 1});
  mask = mask_of(0);
  EXPECT_TRUE(CPU_EQUAL(&mask, &before));
  ended.set_value();
  other.join();
}

}  // namespace
}  // namespace sluice
