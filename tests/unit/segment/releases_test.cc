// SPDX-License-Identifier: Apache-2.0
//
// Planes of different releases at one segment. Releases whose counters differ work together; all others are
// refused by name.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/layout.h"
#include "dataplane/segment/ownership.h"

namespace sluice::segment {
namespace {

class Releases : public testing::Test {
 protected:
  ~Releases() override { Segment::remove(name_); }

  /// A process of tests/unit/segment/other_release.cc.
  class Other {
   public:
    Other(const char* plane, const std::string& name) {
      int in[2];
      int out[2];
      EXPECT_EQ(::pipe2(in, O_CLOEXEC) + ::pipe2(out, O_CLOEXEC), 0);
      child_ = ::fork();
      if (child_ == 0) {
        ::dup2(in[0], STDIN_FILENO);
        ::dup2(out[1], STDOUT_FILENO);
        // Programs for another architecture run in an emulator.
        if (const char* const emulator = std::getenv("MESON_EXE_WRAPPER"))
          ::execl(emulator, emulator, SLUICE_OTHER_RELEASE, plane, name.c_str(), nullptr);
        ::execl(SLUICE_OTHER_RELEASE, SLUICE_OTHER_RELEASE, plane, name.c_str(), nullptr);
        ::_exit(127);
      }
      ::close(in[0]);
      ::close(out[1]);
      in_.reset(in[1]);
      said_ = ::fdopen(out[0], "r");
    }
    ~Other() {
      in_.reset();
      ::waitpid(child_, nullptr, 0);
      ::fclose(said_);
    }
    std::string line() {
      char line[512] = "";
      return ::fgets(line, sizeof line, said_) != nullptr ? line : "";
    }

   private:
    pid_t child_;
    FileDescriptor in_;
    FILE* said_;
  };
  static std::uint64_t received(Segment& segment) {
    std::size_t own = 0;
    while (kTransportCounters[own].name != "messages_received") ++own;
    return segment.layout().places.value(CounterFamily::Transport, own,
                                         segment.layout().reactors[0].transport_counters[0]);
  }

  const std::string name_ = "sluice-releases-test-" + std::to_string(::getpid());
};

TEST_F(Releases, a_control_plane_reads_the_counters_of_a_data_plane_of_another_by_their_names) {
  ControlOwnership control(name_);
  control.take();
  Other data("data", name_);
  ASSERT_EQ(data.line(), "up\n");
  EXPECT_EQ(control.segment().refresh(Part::Data), Segment::Found::Appeared) << control.segment().problem();
  EXPECT_TRUE(control.segment().data_plane_runs());
  EXPECT_EQ(received(control.segment()), 7u);
}

TEST_F(Releases, a_control_plane_of_another_takes_over_while_the_data_plane_runs) {
  {
    ControlOwnership first(name_);
    first.take();
    ConfigBlock block;
    block.generation = 5;
    first.layout().config.write(block);
  }
  const auto segment = Segment::attach(name_);
  const DataPlaneOwnership data(*segment);
  auto& counters = segment->layout().reactors[0].transport_counters[0];
  for (std::size_t i = 0; i < kTransportCounterCount; ++i) counters[i] = 1000 + i;
  Other next("control", name_);
  EXPECT_EQ(next.line(),
            "epoch 2 generation 5 received " + std::to_string(received(*segment)) + " other 0 runs 1\n");
}

/// Counters that the other release stored under other names restart from zero.
TEST_F(Releases, a_data_plane_of_another_leaves_no_wrong_counts) {
  ControlOwnership control(name_);
  control.take();
  { EXPECT_EQ(Other("data", name_).line(), "up\n"); }
  const auto segment = Segment::attach(name_);
  EXPECT_EQ(received(*segment), 7u);
  const DataPlaneOwnership data(*segment);
  const ReactorArea& area = segment->layout().reactors[0];
  for (const auto& counter : area.transport_counters[0]) EXPECT_EQ(counter, 0u);
  EXPECT_EQ(area.counters[0], 0u);
  EXPECT_EQ(area.invariant_failures[0], 0u);
  EXPECT_EQ(area.device_statistics[0], 0u);
  EXPECT_EQ(area.upstreams[0].counters[0], 0u);
  EXPECT_EQ(area.reverse.counters[0], 0u);
  control.segment().refresh(Part::Data);
  EXPECT_EQ(received(control.segment()), 0u);
}

TEST_F(Releases, a_section_that_differs_is_refused_by_its_name) {
  const auto refusal = [&](auto change) {
    Segment::remove(name_);
    const auto owner = Segment::open_or_create(name_);
    change(owner->control_part().head.sections);
    const auto onlooker = std::make_unique<Segment>(name_);
    EXPECT_EQ(onlooker->refresh(Part::Control), Segment::Found::Unusable);
    return onlooker->problem();
  };
  const auto says = [](const std::string& said, const char* what) {
    return said.find(what) != std::string::npos;
  };
  std::string said = refusal([](auto& sections) { ++sections[0].hash; });
  EXPECT_TRUE(says(said, "its section 'config' has another layout")) << said;
  said = refusal([](auto& sections) { sections[1].version = 7; });
  EXPECT_TRUE(says(said, "its section 'reactors' has version 7, not 1")) << said;
  said = refusal([](auto& sections) { sections[1].offset += 8; });
  EXPECT_TRUE(says(said, "its section 'reactors' has another layout")) << said;
  said = refusal([](auto& sections) { sections[4] = {}; });
  EXPECT_TRUE(says(said, "its section 'state' is missing")) << said;
  said = refusal([](auto& sections) { std::memset(static_cast<void*>(&sections), 0xff, sizeof sections); });
  EXPECT_TRUE(says(said, "its section 'config' is missing")) << said;
}

TEST_F(Releases, a_section_more_is_no_difference) {
  auto sections = sections_of(Part::Control);
  EXPECT_EQ(difference(Part::Control, sections, sizeof(ControlPart)), "");
  std::strcpy(sections[15].name.data(), "new");
  EXPECT_EQ(difference(Part::Control, sections, sizeof(ControlPart) + 4096), "");
  EXPECT_EQ(difference(Part::Control, sections, sizeof(ControlPart) / 2), "it is truncated");
}

TEST(TwoCopiesOfAConfiguration, one_is_whole_when_a_writer_died_within_the_other) {
  const auto copies = std::make_unique<TwoCopies<ConfigBlock>>();
  ConfigBlock block;
  for (std::uint64_t generation = 1; generation < 5; ++generation) {
    block.generation = generation;
    copies->write(block);
    // A writer that was killed has changed one copy, but not the sequence number that selects it.
    auto torn = std::make_unique<TwoCopies<ConfigBlock>>();
    std::memcpy(static_cast<void*>(torn.get()), static_cast<const void*>(copies.get()), sizeof *torn);
    block.generation = 99;
    copies->write(block);
    const std::uint32_t written = torn->sequence();
    std::memcpy(static_cast<void*>(torn.get()), static_cast<const void*>(copies.get()), sizeof *torn);
    std::memcpy(static_cast<void*>(torn.get()), &written, sizeof written);
    ASSERT_NE(torn->read_copy(), nullptr);
    EXPECT_EQ(torn->read_copy()->generation, generation);
    block.generation = generation;
    copies->write(block);
  }
}

TEST(Checked, texts_without_an_end_get_one_and_numbers_stay_within_their_arrays) {
  SeqLock<ExportInfo> shared{};
  ExportInfo info;
  std::memset(static_cast<void*>(&info), 0xff, sizeof info);
  shared.write(info);
  const auto read = checked(shared);
  ASSERT_TRUE(read);
  EXPECT_EQ(std::strlen(read->path), kMaxPathBytes - 1);
  EXPECT_EQ(read->root_handle_bytes, 0u);
  ProcedureInfo procedure;
  std::memset(static_cast<void*>(&procedure), 'x', sizeof procedure);
  EXPECT_EQ(std::strlen(checked(procedure).procedure_name), sizeof procedure.procedure_name - 1);
  ConnectionInfo connection;
  std::memset(static_cast<void*>(&connection), 0xff, sizeof connection);
  bound(connection);
  EXPECT_LT(connection.client_class, kMaxClasses);
}

TEST(Checked, a_configuration_that_no_control_plane_writes_has_a_defect) {
  EXPECT_EQ(defect_of({}), "");
  const auto defect = [](auto change) {
    auto config = std::make_unique<ConfigBlock>();
    change(*config);
    return defect_of(*config);
  };
  EXPECT_EQ(defect([](auto& c) { c.reactors = 9; }), "reactor.count is 9, not from 1 to 8");
  EXPECT_EQ(defect([](auto& c) { c.reactors = 0; }), "reactor.count is 0, not from 1 to 8");
  EXPECT_NE(defect([](auto& c) { c.upstream_count = 9; }), "");
  EXPECT_EQ(defect([](auto& c) {
              c.upstream_count = 1;
              c.upstreams[0].listen_port = 65536;
            }),
            "upstream.listen_port is 65536, not from 0 to 65535");
  EXPECT_EQ(defect([](auto& c) { c.started_slots.count = kMaxUpstreams + 1; }),
            "upstream slots is 9, not from 0 to 8");
  EXPECT_NE(defect([](auto& c) {
              c.started_slots.count = 1;
              c.upstream_count = 2;
            }),
            "");
  EXPECT_NE(defect([](auto& c) { c.started_slots.over_rdma = kMaxUpstreams + 1; }), "");
  EXPECT_NE(defect([](auto& c) { c.started_slots.rdma_connections = kMaxUpstreamConnections + 1; }), "");
  EXPECT_EQ(defect([](auto& c) { c.keep_alive_s = 3601; }),
            "transport.keep_alive_s is 3601, not from 0 to 3600");
  EXPECT_NE(defect([](auto& c) { c.class_count = 0; }), "");
  EXPECT_NE(defect([](auto& c) { c.max_connections = kMaxConnections + 1; }), "");
  EXPECT_NE(defect([](auto& c) { c.exports[31].allowed_count = kMaxAllowed + 1; }), "");
  EXPECT_NE(defect([](auto& c) { c.driver = static_cast<Driver>(3); }), "");
  EXPECT_EQ(defect([](auto& c) { std::memset(c.ethdev, 'x', sizeof c.ethdev); }), "device.ethdev has no end");
  EXPECT_NE(defect([](auto& c) {
              c.max_connections = kMaxConnections;
              c.reverse.in_use = 1;
            }).find("connections in all"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::segment
