// SPDX-License-Identifier: Apache-2.0
//
// The loopback driver between two threads (for the thread sanitizer) and between two processes, one of which
// is killed.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "dataplane/base/setup_error.h"
#include "pmd/loopback/loopback.h"
#include "tests/driver/driver_fixture.h"
#include "tests/unit/base/counted_invariants.h"

namespace sluice::rdma::conformance {
namespace {

constexpr std::uint16_t kPort = 4242;
constexpr std::size_t kBytes = 1 << 20;
constexpr auto kPatience = std::chrono::seconds(30);

/// One side: a device, a queue pair, memory, and what completed.
struct Party {
  std::unique_ptr<loopback::Loopback> device;
  Owned<QueuePair> qp;
  MemoryRegion memory;
  std::vector<WorkCompletion> completions;
  std::optional<CmId> id;

  explicit Party(std::shared_ptr<loopback::Fabric> fabric, const char* name)
      : device(loopback::make_device(std::move(fabric), {.name = name})) {
    memory = device->allocate_memory(2 * kBytes);
    qp = device->create_queue_pair({});
  }
  Sge sge(std::size_t at, std::uint32_t bytes) const {
    return {memory.bytes.data() + at, bytes, memory.lkey};
  }
  std::vector<CmEventType> events() {
    std::vector<CmEventType> types;
    CmEvent found[4];
    while (const std::size_t count = device->connection_manager()->poll_events(found))
      for (const CmEvent& event : std::span(found, count)) {
        types.push_back(event.type);
        id = event.id;
      }
    return types;
  }
  void poll() {
    WorkCompletion wcs[16];
    const std::size_t count = device->poll(wcs);
    completions.insert(completions.end(), wcs, wcs + count);
    if (count == 0) std::this_thread::yield();
  }
  template <typename Condition>
  bool until(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      poll();
    }
    return true;
  }
  std::optional<WorkCompletion> await(std::uint64_t wr_id) {
    std::optional<WorkCompletion> found;
    until([&] {
      for (const WorkCompletion& wc : completions)
        if (wc.wr_id == wr_id) found = wc;
      return found.has_value();
    });
    return found;
  }
  bool post(const SendWr& wr) { return qp->post_send({&wr, 1}) == 1; }
  bool receive(std::uint64_t wr_id, const Sge& into) {
    const RecvWr wr{wr_id, into};
    return qp->post_recv({&wr, 1}) == 1;
  }
  bool connect() {
    id = device->connection_manager()->connect(*qp, kPort, {});
    return id && until_event(CmEventType::Established);
  }
  bool accept() {
    return until_event(CmEventType::ConnectRequest) && device->connection_manager()->accept(*id, *qp, {}) &&
           until([&] { return qp->state() == QueuePair::State::ReadyToSend; });
  }
  bool until_event(CmEventType type) {
    bool seen = false;
    return until([&] {
      CmEvent events[4];
      const std::size_t count = device->connection_manager()->poll_events(events);
      for (const CmEvent& event : std::span(events, count)) {
        id = event.id;
        seen = seen || event.type == type;
      }
      return seen;
    });
  }
};

/// Sent by the side that exposes memory.
struct Invitation {
  std::uint64_t address;
  std::uint32_t rkey;
};

std::byte pattern(std::uint32_t round, std::size_t i) {
  return static_cast<std::byte>(round * 131 + i * 7 + (i >> 8));
}

/// Runs rounds of Writes to the peer's memory, each announced by a Send. A seed determines sizes and offsets.
constexpr std::uint32_t kRounds = 1500;

void write_rounds(Party& party) {
  ASSERT_TRUE(party.receive(1, party.sge(0, sizeof(Invitation))));
  ASSERT_TRUE(party.connect());
  ASSERT_TRUE(party.await(1));
  Invitation invitation;
  std::memcpy(&invitation, party.memory.bytes.data(), sizeof invitation);
  std::mt19937 random(1);
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint32_t header[3] = {round, static_cast<std::uint32_t>(random() % (kBytes - 8192)),
                                     static_cast<std::uint32_t>(1 + random() % 8192)};
    party.completions.clear();
    ASSERT_TRUE(party.receive(2, party.sge(64, 16)));  // for the answer
    std::byte* source = party.memory.bytes.data() + kBytes;
    for (std::size_t i = 0; i < header[2]; ++i) source[i] = pattern(round, i);
    std::memcpy(party.memory.bytes.data() + 128, header, sizeof header);
    const Sge data = party.sge(kBytes, header[2]);
    const Sge word = party.sge(128, sizeof header);
    ASSERT_TRUE(party.post({.wr_id = 3,
                            .sges = {&data, 1},
                            .remote_address = invitation.address + header[1],
                            .rkey = static_cast<Rkey>(invitation.rkey),
                            .opcode = SendOpcode::RdmaWrite}));
    ASSERT_TRUE(party.post({.wr_id = 4, .sges = {&word, 1}, .opcode = SendOpcode::Send}));
    ASSERT_TRUE(party.await(2)) << round;
    ASSERT_EQ(party.await(4)->status, WcStatus::Success);
    // A Read fetches the data back.
    const Sge back = party.sge(kBytes + 65536, header[2]);
    ASSERT_TRUE(party.post({.wr_id = 5,
                            .sges = {&back, 1},
                            .remote_address = invitation.address + header[1],
                            .rkey = static_cast<Rkey>(invitation.rkey),
                            .opcode = SendOpcode::RdmaRead}));
    ASSERT_EQ(party.await(5)->status, WcStatus::Success);
    ASSERT_EQ(std::memcmp(source, back.address, header[2]), 0) << round;
  }
}

void check_rounds(Party& party) {
  ASSERT_TRUE(party.receive(10, party.sge(0, 16)));
  party.device->connection_manager()->listen(kPort);
  ASSERT_TRUE(party.accept());
  const MemoryWindow window = party.device->allocate_window();
  const auto exposed = party.memory.bytes.subspan(kBytes);
  const auto rkey = party.qp->bind_window(window, exposed, party.memory.lkey, kRemoteWrite | kRemoteRead);
  ASSERT_TRUE(rkey);
  const Invitation invitation{reinterpret_cast<std::uintptr_t>(exposed.data()),
                              static_cast<std::uint32_t>(*rkey)};
  std::memcpy(party.memory.bytes.data() + 256, &invitation, sizeof invitation);
  const Sge word = party.sge(256, sizeof invitation);
  ASSERT_TRUE(party.post({.wr_id = 11, .sges = {&word, 1}, .opcode = SendOpcode::Send}));
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(party.await(10)) << round;
    std::uint32_t header[3];
    std::memcpy(header, party.memory.bytes.data(), sizeof header);
    ASSERT_EQ(header[0], round);
    for (std::size_t i = 0; i < header[2]; ++i) ASSERT_EQ(exposed[header[1] + i], pattern(round, i)) << round;
    party.completions.clear();
    ASSERT_TRUE(party.receive(10, party.sge(0, 16)));
    const Sge answer = party.sge(512, 4);
    ASSERT_TRUE(party.post({.wr_id = 12, .sges = {&answer, 1}, .opcode = SendOpcode::Send}));
    ASSERT_TRUE(party.await(12));
  }
}

TEST(LoopbackThreads, reads_writes_and_sends_cross_threads_in_order) {
  const auto fabric = loopback::Fabric::in_process({.links = 4});
  Party left(fabric, "left");
  Party right(fabric, "right");
  right.device->connection_manager()->listen(kPort);
  std::thread other([&] { check_rounds(right); });
  write_rounds(left);
  // The last answer has arrived before the queue pairs are destroyed.
  other.join();
}

TEST(LoopbackThreads, a_device_belongs_to_the_thread_that_polls_it) {
  static constexpr std::uint64_t kEvaluated = kAbortOnInvariant ? 1 : 0;
  Party party(loopback::Fabric::in_process({.links = 1}), "party");
  party.poll();
  std::thread([&party] {
    const CountedInvariants counted;
    party.poll();
    EXPECT_EQ(counted.failed(Invariant::object_owner), kEvaluated);
    party.device->pass_on();
    party.poll();
    EXPECT_EQ(counted.failed(Invariant::object_owner), kEvaluated);
  }).join();
  const CountedInvariants counted;
  party.poll();
  EXPECT_EQ(counted.failed(Invariant::object_owner), kEvaluated);
}

TEST(LoopbackWire, a_message_with_its_length_fills_a_cache_line_and_a_handle_has_room_of_its_own) {
  const auto fabric = loopback::Fabric::in_process({.links = 1});
  Party left(fabric, "left");
  Party right(fabric, "right");
  right.device->connection_manager()->listen(kPort);
  left.id = left.device->connection_manager()->connect(*left.qp, kPort, {});
  ASSERT_TRUE(right.accept());
  ASSERT_TRUE(left.until_event(CmEventType::Established));
  const auto rkey = right.qp->bind_window(right.device->allocate_window(), right.memory.bytes.first(4096),
                                          right.memory.lkey, kRemoteRead);
  ASSERT_TRUE(rkey);
  constexpr std::uint32_t kLength = kCacheLine - 4;
  for (std::size_t i = 0; i < kLength; ++i) left.memory.bytes[i] = pattern(1, i);
  const std::atomic<std::uint64_t>& produced = fabric->link(0).sides[loopback::kConnector].produced;
  const Sge message = left.sge(0, kLength);
  std::uint64_t expected = 0;
  for (const SendOpcode opcode : {SendOpcode::Send, SendOpcode::SendWithInvalidate}) {
    const bool invalidates = opcode == SendOpcode::SendWithInvalidate;
    right.completions.clear();
    std::fill_n(right.memory.bytes.data() + kBytes, kLength, std::byte{0});
    ASSERT_TRUE(right.receive(1, right.sge(kBytes, kLength)));
    ASSERT_TRUE(left.post({.wr_id = 2, .sges = {&message, 1}, .rkey = *rkey, .opcode = opcode}));
    EXPECT_EQ(produced.load(), expected += invalidates ? 2 * kCacheLine : kCacheLine);
    const auto received = right.await(1);
    ASSERT_TRUE(received);
    EXPECT_EQ(received->byte_len, kLength);
    EXPECT_EQ(received->remote_invalidate, invalidates);
    EXPECT_EQ(received->rkey, invalidates ? *rkey : Rkey{});
    EXPECT_EQ(std::memcmp(right.memory.bytes.data() + kBytes, left.memory.bytes.data(), kLength), 0);
  }
}

/// State of the connection when the connecting queue pair is destroyed.
enum class Moment { Requested, Announced, Accepted, Rejected };

class LoopbackLinks : public testing::TestWithParam<Moment> {
 protected:
  static std::vector<CmEventType> events(loopback::Loopback& device) {
    std::vector<CmEventType> types;
    CmEvent event;
    while (device.connection_manager()->poll_events({&event, 1}) == 1) {
      types.push_back(event.type);
      last_ = event.id;
    }
    return types;
  }
  static inline CmId last_{};
};

TEST_P(LoopbackLinks, a_queue_pair_destroyed_while_it_connects_gives_back_its_link) {
  const auto fabric = loopback::Fabric::in_process({.links = 2});
  const auto client = loopback::make_device(fabric, {.name = "client"});
  const auto server = loopback::make_device(fabric, {.name = "server"});
  server->connection_manager()->listen(kPort);
  for (int round = 0; round < 6; ++round) {
    auto connecting = client->create_queue_pair({});
    auto accepting = server->create_queue_pair({});
    ASSERT_TRUE(client->connection_manager()->connect(*connecting, kPort, {}))
        << "no link in round " << round;
    std::vector<CmEventType> expected = {CmEventType::Disconnected};
    if (GetParam() == Moment::Requested)
      expected.insert(expected.begin(), CmEventType::ConnectRequest);
    else
      ASSERT_EQ(events(*server), std::vector{CmEventType::ConnectRequest});
    if (GetParam() == Moment::Accepted) {
      ASSERT_TRUE(server->connection_manager()->accept(last_, *accepting, {}));
    }
    if (GetParam() == Moment::Rejected) {
      server->connection_manager()->reject(last_, {});
      expected.clear();
    }
    connecting.reset();
    EXPECT_TRUE(events(*client).empty());
    EXPECT_EQ(events(*server), expected);
    if (GetParam() == Moment::Accepted)
      EXPECT_EQ(accepting->state(), QueuePair::State::Error);
    else
      EXPECT_FALSE(server->connection_manager()->accept(last_, *accepting, {}));
  }
}
INSTANTIATE_TEST_SUITE_P(Moments, LoopbackLinks,
                         testing::Values(Moment::Requested, Moment::Announced, Moment::Accepted,
                                         Moment::Rejected));

class LoopbackProcesses : public testing::Test {
 protected:
  LoopbackProcesses() : path_("/dev/shm/sluice-driver-" + std::to_string(::getpid())) {}

  /// Runs a client process that connects, exposes a pattern, and lets the server read it and write it back
  /// changed.
  pid_t start_client(bool hang) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::_exit(client(hang));
  }
  int client(bool hang) {
    Party party(loopback::Fabric::attach(path_), "client");
    if (!party.receive(1, party.sge(0, 16)) || !party.connect()) return 2;
    const auto exposed = party.memory.bytes.subspan(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) exposed[i] = pattern(1, i);
    const auto rkey = party.qp->bind_window(party.device->allocate_window(), exposed, party.memory.lkey,
                                            kRemoteRead | kRemoteWrite);
    if (!rkey) return 3;
    const Invitation invitation{reinterpret_cast<std::uintptr_t>(exposed.data()),
                                static_cast<std::uint32_t>(*rkey)};
    std::memcpy(party.memory.bytes.data() + 256, &invitation, sizeof invitation);
    const Sge word = party.sge(256, sizeof invitation);
    if (!party.post({.wr_id = 2, .sges = {&word, 1}, .opcode = SendOpcode::Send})) return 4;
    while (hang) ::pause();
    if (!party.await(1)) return 5;
    for (std::size_t i = 0; i < kBytes; ++i)
      if (exposed[i] != pattern(2, i)) return 6;
    return 0;
  }
  Invitation welcome(Party& party) {
    EXPECT_TRUE(party.receive(10, party.sge(0, sizeof(Invitation))));
    EXPECT_TRUE(party.accept());
    EXPECT_TRUE(party.await(10));
    Invitation invitation{};
    std::memcpy(&invitation, party.memory.bytes.data(), sizeof invitation);
    return invitation;
  }
  void serve(Party& party) {
    const Invitation invitation = welcome(party);
    const Sge data = party.sge(kBytes, kBytes);
    ASSERT_TRUE(party.post({.wr_id = 11,
                            .sges = {&data, 1},
                            .remote_address = invitation.address,
                            .rkey = static_cast<Rkey>(invitation.rkey),
                            .opcode = SendOpcode::RdmaRead}));
    ASSERT_EQ(party.await(11)->status, WcStatus::Success);
    for (std::size_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(data.address[i], pattern(1, i));
      data.address[i] = pattern(2, i);
    }
    ASSERT_TRUE(party.post({.wr_id = 12,
                            .sges = {&data, 1},
                            .remote_address = invitation.address,
                            .rkey = static_cast<Rkey>(invitation.rkey),
                            .opcode = SendOpcode::RdmaWrite}));
    const Sge word = party.sge(512, 4);
    ASSERT_TRUE(party.post({.wr_id = 13, .sges = {&word, 1}, .opcode = SendOpcode::Send}));
    ASSERT_EQ(party.await(13)->status, WcStatus::Success);
  }
  static int status_of(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const std::string path_;
};

TEST_F(LoopbackProcesses, a_client_in_another_process_is_read_from_and_written_to) {
  auto fabric = loopback::Fabric::create(path_, {.links = 2, .arena_bytes = 8 * kBytes});
  Party server(fabric, "server");
  server.device->connection_manager()->listen(kPort);
  const pid_t pid = start_client(false);
  serve(server);
  EXPECT_EQ(status_of(pid), 0);
}

TEST_F(LoopbackProcesses, a_killed_client_is_let_go_of_and_its_link_used_again) {
  auto fabric = loopback::Fabric::create(path_, {.links = 1, .arena_bytes = 8 * kBytes});
  Party server(fabric, "server");
  server.device->connection_manager()->listen(kPort);
  for (std::uint32_t round = 0; round < loopback::kMaxDevices + 2; ++round) {
    const pid_t dying = start_client(true);
    welcome(server);
    ASSERT_TRUE(server.receive(20, server.sge(0, 16)));
    EXPECT_EQ(server.device->connection_manager()->peer_pid(*server.id), static_cast<std::uint32_t>(dying));
    ::kill(dying, SIGKILL);
    ::waitpid(dying, nullptr, 0);
    EXPECT_EQ(server.events(), std::vector{CmEventType::Established});
    server.device->handle_events();
    EXPECT_EQ(server.events(), std::vector{CmEventType::Disconnected});
    ASSERT_EQ(server.qp->state(), QueuePair::State::Error);
    EXPECT_EQ(server.await(20)->status, WcStatus::WrFlushError);
    server.qp = server.device->create_queue_pair({});
    server.completions.clear();
  }
  const pid_t living = start_client(false);
  serve(server);
  EXPECT_EQ(status_of(living), 0);
}

TEST_F(LoopbackProcesses, a_client_that_was_killed_before_it_had_an_answer_leaves_its_link) {
  auto fabric = loopback::Fabric::create(path_, {.links = 1, .arena_bytes = 8 * kBytes});
  Party server(fabric, "server");
  server.device->connection_manager()->listen(kPort);
  for (const bool rejected : {false, true}) {
    const pid_t dying = start_client(true);
    ASSERT_TRUE(server.until([&] { return server.events() == std::vector{CmEventType::ConnectRequest}; }));
    ::kill(dying, SIGKILL);
    ::waitpid(dying, nullptr, 0);
    if (rejected) server.device->connection_manager()->reject(*server.id, {});
    server.device->handle_events();
    EXPECT_EQ(server.events(),
              rejected ? std::vector<CmEventType>{} : std::vector{CmEventType::Disconnected});
  }
  const pid_t living = start_client(false);
  serve(server);
  EXPECT_EQ(status_of(living), 0);
}

TEST_F(LoopbackProcesses, a_client_notices_that_its_server_was_killed) {
  const pid_t dying = ::fork();
  if (dying == 0) {
    Party server(loopback::Fabric::create(path_, {.links = 1, .arena_bytes = 8 * kBytes}), "server");
    server.device->connection_manager()->listen(kPort);
    ::_exit(server.accept() && ::pause() == 0 ? 0 : 1);
  }
  std::shared_ptr<loopback::Fabric> fabric;
  for (const auto end = std::chrono::steady_clock::now() + kPatience;
       fabric == nullptr && std::chrono::steady_clock::now() < end; std::this_thread::yield())
    if (std::filesystem::exists(path_)) fabric = loopback::Fabric::attach(path_);
  ASSERT_NE(fabric, nullptr);
  Party client(fabric, "client");
  ASSERT_TRUE(client.connect());
  client.device->handle_events();
  EXPECT_EQ(client.events(), std::vector<CmEventType>{});
  ::kill(dying, SIGKILL);
  ::waitpid(dying, nullptr, 0);
  client.device->handle_events();
  EXPECT_EQ(client.events(), std::vector{CmEventType::Disconnected});
  EXPECT_EQ(client.qp->state(), QueuePair::State::Error);
}

TEST_F(LoopbackProcesses, the_number_of_a_dead_client_is_free_once_its_links_are) {
  auto fabric = loopback::Fabric::create(path_, {.links = 2, .arena_bytes = 8 * kBytes});
  Party server(fabric, "server");
  server.device->connection_manager()->listen(kPort);
  const pid_t dying = start_client(true);
  welcome(server);
  ::kill(dying, SIGKILL);
  ::waitpid(dying, nullptr, 0);
  std::vector<std::unique_ptr<loopback::Loopback>> others;
  const auto take_one = [&] { others.push_back(loopback::make_device(loopback::Fabric::attach(path_))); };
  for (std::uint32_t i = 0; i < loopback::kMaxDevices - 2; ++i) take_one();
  EXPECT_THROW(take_one(), SetupError);
  EXPECT_EQ(server.events(), std::vector{CmEventType::Established});
  server.device->handle_events();
  EXPECT_EQ(server.events(), std::vector{CmEventType::Disconnected});
  server.qp.reset();
  take_one();
}

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const SetupError& error) {
    return error.what();
  }
  return {};
}

TEST_F(LoopbackProcesses, a_fabric_has_one_creator) {
  const auto first = loopback::Fabric::create(path_, {.links = 1, .arena_bytes = kBytes});
  const std::string said =
      refusal_of([&] { loopback::Fabric::create(path_, {.links = 1, .arena_bytes = kBytes}); });
  EXPECT_NE(said.find("Another data plane serves the loopback fabric " + path_), std::string::npos) << said;
  EXPECT_TRUE(loopback::Fabric::attach(path_)->creator_alive());
}

TEST_F(LoopbackProcesses, what_a_killed_creator_left_is_replaced) {
  const pid_t dying = ::fork();
  if (dying == 0) {
    const auto left = loopback::Fabric::create(path_, {.links = 1, .arena_bytes = kBytes});
    ::_exit(0);
  }
  EXPECT_EQ(status_of(dying), 0);
  const auto next = loopback::Fabric::create(path_, {.links = 2, .arena_bytes = kBytes});
  EXPECT_EQ(loopback::Fabric::attach(path_)->links(), 2u);
}

TEST_F(LoopbackProcesses, what_is_no_fabric_stays_where_it_is) {
  std::filesystem::create_directory(path_);
  EXPECT_NE(refusal_of([&] { loopback::Fabric::create(path_); }).find("is not a loopback fabric"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::is_directory(path_));
  std::filesystem::remove(path_);
}

/// The process has a file system of 4 MiB.
TEST_F(LoopbackProcesses, memory_that_is_not_there_is_said_at_setup) {
  constexpr int kNotPermitted = 77;
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/dev/shm", "tmpfs", 0, "size=4m") != 0)
      ::_exit(kNotPermitted);
    // Only 1 of 8 links fits.
    if (refusal_of([&] {
          loopback::Fabric::create(path_, {.links = 8});
        }).find("MiB for the loopback fabric") == std::string::npos)
      ::_exit(1);
    if (!std::filesystem::is_empty("/dev/shm")) ::_exit(2);
    const auto fabric = loopback::Fabric::create(path_, {.links = 1, .arena_bytes = 8 * kBytes});
    const auto client = loopback::make_device(loopback::Fabric::attach(path_));
    if (refusal_of([&] { client->allocate_memory(6 * kBytes); }).find("Cannot allocate 6 MiB") ==
        std::string::npos)
      ::_exit(3);
    client->allocate_memory(kBytes);  // the failed allocation took nothing
    ::_exit(0);
  }
  const int status = status_of(pid);
  if (status == kNotPermitted) GTEST_SKIP() << "Mount namespaces are not permitted here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sluice::rdma::conformance
