// SPDX-License-Identifier: Apache-2.0
//
// The tests of sluice-conformance: our server passes them in one process, and a server that breaks a rule
// does not.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "cli/conformance/link.h"
#include "cli/conformance/nfs.h"
#include "cli/conformance/run.h"
#include "cli/conformance/upstream.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/service/memory/memory_service.h"
#include "pmd/loopback/loopback.h"
#include "tests/unit/link_of_own.h"
#include "tests/unit/listener.h"

namespace sluice::conformance {
namespace {

constexpr std::uint16_t kServerPort = 20049;
constexpr std::uint32_t kInlineBytes = 4096;

std::uint64_t wall_clock() noexcept {
  return 1'700'000'000'000'000'000;
}

class LocalServer {
 public:
  explicit LocalServer(std::shared_ptr<rdma::loopback::Fabric> fabric)
      : device_(rdma::loopback::make_device(std::move(fabric), {.name = "server"})),
        engine_(*device_, config()),
        memory_(device_->allocate_memory(16u << 20),
                device_->allocate_memory(service::memory::kLargeBytes + 64), exports(), &wall_clock) {
    engine_.add_service(memory_);
    device_->connection_manager()->listen(kServerPort);
  }
  void turn() {
    engine_.poll(now_ns_ += 10'000);
    while (engine_.take_closed() != nullptr) {
    }
    rdma::CmEvent events[4];
    const std::size_t count = device_->connection_manager()->poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, count)) {
      if (event.type != rdma::CmEventType::ConnectRequest) continue;
      auto qp = device_->create_queue_pair(engine_.queue_pair_limits());
      rdma::QueuePair& queue_pair = *qp;
      rpcrdma::Connection* connection = engine_.free_connection();
      ASSERT_NE(connection, nullptr);
      const auto peer = rpcrdma::decode_private_data({event.private_data, event.private_data_bytes});
      connection->open(std::move(qp),
                       {.receive_inline_bytes = kInlineBytes,
                        .send_inline_bytes = rpcrdma::send_inline_bytes(peer, kInlineBytes),
                        .credit_grant = 32,
                        .max_version = 2},
                       event.peer_address, nullptr);
      const auto own =
          rpcrdma::encode_private_data({.send_bytes = kInlineBytes, .receive_bytes = kInlineBytes});
      ASSERT_TRUE(device_->connection_manager()->accept(event.id, queue_pair, own));
      connection->established();
    }
  }
  Bytes root() const {
    const auto handle = memory_.root_handle(0);
    return {handle.begin(), handle.end()};
  }

 private:
  static rpcrdma::EngineConfig config() {
    rpcrdma::EngineConfig config;
    config.max_connections = 4;
    return config;
  }
  static service::memory::MemoryServiceConfig exports() {
    service::memory::MemoryServiceConfig config{.max_files = 100, .handle_key = {}, .exports = {}};
    config.exports = {{.path = "/", .root_squash = false, .allowed = {}}};
    return config;
  }

  std::unique_ptr<rdma::loopback::Loopback> device_;
  rpcrdma::Engine engine_;
  service::memory::MemoryService memory_;
  std::uint64_t now_ns_ = 1;
};

/// Changes a message of the server in transit. The message is lost if this returns false.
using Deviation = std::function<bool(Bytes&)>;

class LocalLink final : public Link {
 public:
  LocalLink(rdma::Device& device, LocalServer& server)
      : Link(device, *device.connection_manager(), kServerPort), server_(server) {}
  Deviation deviation;

 private:
  void other_side() override { server_.turn(); }
  void arrived(std::vector<Received>& inbox, std::size_t first) override {
    if (!deviation) return;
    for (std::size_t i = first; i < inbox.size();) {
      if (deviation(inbox[i].bytes))
        ++i;
      else
        inbox.erase(inbox.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  LocalServer& server_;
};

struct Bench {
  std::shared_ptr<rdma::loopback::Fabric> fabric = rdma::loopback::Fabric::in_process({.links = 8});
  LocalServer server{fabric};
  std::unique_ptr<rdma::loopback::Loopback> device = rdma::loopback::make_device(fabric, {.name = "client"});
  LocalLink link{*device, server};
  Limits limits{.answer_ns = 200'000'000, .quiet_ns = 2'000'000};
  Target target{.root = server.root(), .file = {}, .name = "file"};
  std::uint32_t xid = 1;

  Bench() {
    Trial trial(link, target, limits, xid);
    make_file(trial, target);
  }
  Result run(const conformance::Test& test) {
    return run_test(test, link, target, limits, true, xid += 65536);
  }
};

class OfVersion : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(OfVersion, our_server_passes) {
  Bench bench;
  ASSERT_FALSE(bench.target.file.empty());
  bench.limits.answer_ns = 5'000'000'000;
  for (const auto* test : tests_of(GetParam())) {
    const Result result = bench.run(*test);
    EXPECT_EQ(result.outcome, Outcome::Passed) << test->name << ": " << result.detail;
  }
}

/// No test may pass when the server is silent.
TEST_P(OfVersion, a_server_that_does_not_answer_fails_every_test) {
  Bench bench;
  bench.link.deviation = [](Bytes&) { return false; };
  bench.limits.answer_ns = 5'000'000;
  for (const auto* test : tests_of(GetParam()))
    EXPECT_NE(bench.run(*test).outcome, Outcome::Passed) << test->name;
}

const conformance::Test kEndsTheConnection = {
    "ends", Level::Must, Needs::Nothing, "", [](Trial& t) {
      t.connect();
      const std::uint32_t refused = t.next_xid();
      t.ask(RawCall{.xid = refused, .proc = 9}.with(null_payload(refused)));
      RawCall call{.xid = t.next_xid(), .proc = 1};
      call.reads = {{0, {.handle = rdma::Rkey{0xBAD}, .length = 128, .offset = 0}}};
      t.send(call.header());
      t.ends();
      t.expect_alive();
    }};

TEST(Verdicts, a_connection_that_ends_behind_an_error_is_no_broken_must) {
  Bench bench;
  for (const bool strict : {false, true}) {
    const Result result = run_test(kEndsTheConnection, bench.link, bench.target, bench.limits, strict,
                                   bench.xid += kXidsOfATest);
    EXPECT_EQ(result.outcome, strict ? Outcome::Failed : Outcome::Unmet) << result.detail;
  }
}

const conformance::Test kSpoilsTheFile = {"spoils", Level::Must, Needs::File, "", [](Trial& t) {
                                            t.connect();
                                            const std::uint32_t xid = t.next_xid();
                                            Bytes payload = write_payload(xid, t.target.file, 0, 64);
                                            payload.resize(payload.size() + 64);
                                            t.ask(RawCall{.xid = xid}.with(payload));
                                            throw Failure("It has to be restored.");
                                          }};

TEST(Verdicts, what_a_failed_test_has_left_in_the_file_is_gone_in_the_next) {
  Bench bench;
  EXPECT_EQ(bench.run(kSpoilsTheFile).detail, "It has to be restored.");
  Trial trial(bench.link, bench.target, bench.limits, bench.xid += kXidsOfATest);
  trial.connect();
  const Bytes content = file_content(trial, 0, 64);
  for (std::uint32_t i = 0; i < content.size(); ++i) EXPECT_EQ(content[i], pattern_byte(kFileSeed, i)) << i;
}

/// A deviation that breaks a rule, and the row whose test has to detect it.
struct Broken {
  const char* row;
  Deviation deviation;
};

Deviation set(std::size_t word, std::uint32_t value) {
  return [=](Bytes& m) {
    return m.size() > word * 4 ? xdr::store_u32(m.data() + word * 4, value) : void(), true;
  };
}
Deviation in_errors(Deviation change) {
  return [=](Bytes& m) { return word_at(m, 3) != 4 || change(m); };
}
Deviation unless_error(Deviation change) {
  return [=](Bytes& m) { return word_at(m, 3) == 4 || change(m); };
}
bool lost(Bytes&) {
  return false;
}
Deviation cut_to(std::size_t bytes) {
  return [=](Bytes& m) { return m.resize(std::min(m.size(), bytes)), true; };
}
/// Sets the length of the first Write chunk of a reply, version 1.
Deviation chunk_has(std::uint32_t bytes) {
  return [=](Bytes& m) {
    return m.size() > 44 && word_at(m, 5) == 1 ? xdr::store_u32(m.data() + 32, bytes) : void(), true;
  };
}

std::vector<Broken> broken_in_version_1() {
  return {
      {"V1-001", set(0, 7)},
      {"V1-003", cut_to(256)},
      {"V1-004", set(1, 2)},
      {"V1-042", set(2, 0)},
      {"V1-048", [n = 0](Bytes&) mutable { return ++n != 3; }},
      {"V1-051", [n = 1u](Bytes& m) mutable { return xdr::store_u32(m.data() + 8, ++n), true; }},
      {"V1-057", [n = 0](Bytes&) mutable { return ++n != 30; }},
      {"V1-019", in_errors([](Bytes& m) { return m.resize(m.size() + 4), true; })},
      {"V1-010", [](Bytes& m) { return m.insert(m.begin(), 4, std::byte{}), true; }},
      {"V1-022", in_errors(lost)},
      {"V1-024", in_errors(set(1, 1))},
      {"V1-031", in_errors(set(4, 1))},
      {"V1-034", in_errors([](Bytes& m) { return m.resize(28), true; })},
      {"V1-062", [](Bytes& m) { return m.resize(std::max<std::size_t>(m.size(), 1028)), true; }},
      {"V1-066",
       [](Bytes& m) { return m.resize(word_at(m, 5) == 1 ? std::max(m.size(), 1028ul) : m.size()), true; }},
      {"V1-070", chunk_has(1000)},
      {"V1-090", set(4, 1)},
      {"V1-094", chunk_has(1000)},
      {"V1-098",
       [](Bytes& m) {
         return m.size() > 44 && word_at(m, 7) == 1 ? xdr::store_u32(m.data() + 40, 200) : void(), true;
       }},
      {"V1-131", set(3, 2)},
      {"V1-134", set(3, 3)},
      {"V1-152",
       [seen = std::set<std::uint32_t>()](Bytes& m) mutable { return seen.insert(word_at(m, 0)).second; }},
      {"V1-153",
       [n = 0](Bytes& m) mutable {
         return ++n > 1 && m.size() > 32 ? xdr::store_u32(&m[28], 7) : void(), true;
       }},
  };
}

/// Adds to a word of each message except errors.
Deviation add(std::size_t word, std::uint32_t value) {
  return unless_error([=](Bytes& m) {
    return m.size() > word * 4 ? xdr::store_u32(m.data() + word * 4, word_at(m, word) + value) : void(), true;
  });
}

std::vector<Broken> broken_in_version_2() {
  const auto properties_say = [](std::size_t word, std::uint32_t value) {
    return [=](Bytes& m) { return word_at(m, 3) != v2::kConnProp || set(word, value)(m); };
  };
  const auto in_parts = [](Deviation change) {
    return [=](Bytes& m) { return (word_at(m, 4) & v2::kMore) == 0 || change(m); };
  };
  return {
      {"V2-011", [](Bytes& m) { return m.size() < 4096; }},
      {"V2-014", in_errors(set(6, 1))},
      {"V2-026", [](Bytes& m) { return set(3, v2::kError)(m); }},
      {"V2-033", unless_error([](Bytes& m) { return set(2, word_at(m, 2) >> 16 | 0x00200000)(m); })},
      {"V2-038", add(2, 64)},
      {"V2-048", properties_say(11, 8192)},
      {"V2-057", in_parts([](Bytes& m) { return m.resize(4100), true; })},
      {"V2-073",
       [](Bytes& m) {
         return m.size() > 48 && word_at(m, 7) == 1 ? xdr::store_u32(m.data() + 40, 64) : void(), true;
       }},
      {"V2-085", in_parts([n = 0u](Bytes& m) mutable { return ++n % 2 == 0 || set(0, 5)(m); })},
      {"V2-092", in_errors(set(5, 2))},
      {"V2-115", in_errors(set(6, 17))},
      {"V2-117", in_errors(set(6, 129))},
      {"V2-154", [n = 0](Bytes&) mutable { return ++n != 4; }},
      {"V2-158", [](Bytes& m) { return word_at(m, 3) != v2::kNoMsg || set(3, 6)(m); }},
      {"V2-159", in_errors(set(1, 2))},
  };
}

TEST_P(OfVersion, a_deviation_is_seen_by_the_test_of_its_row) {
  for (const Broken& broken : GetParam() == 1 ? broken_in_version_1() : broken_in_version_2()) {
    Bench bench;
    bench.link.deviation = broken.deviation;
    std::size_t failed = 0;
    for (const auto* test : tests_of(GetParam())) {
      const auto rows = rows_of(*test);
      if (std::find(rows.begin(), rows.end(), broken.row) == rows.end()) continue;
      const Result result = bench.run(*test);
      failed += result.outcome == Outcome::Failed;
      EXPECT_FALSE(result.outcome == Outcome::Failed && result.detail.empty());
    }
    EXPECT_GT(failed, 0u) << broken.row;
  }
}

INSTANTIATE_TEST_SUITE_P(Conformance, OfVersion, ::testing::Values(1u, 2u));

TEST(Report, says_what_was_asked_wanted_and_seen) {
  Bench bench;
  bench.link.deviation = [](Bytes& m) { return xdr::store_u32(m.data() + 8, 0), true; };
  const conformance::Test& test = *tests_of(1).front();
  const Result result = bench.run(test);
  std::ostringstream out;
  print_tap(out, 3, result);
  EXPECT_EQ(
      out.str().rfind(std::string("not ok 3 ") + test.name + "\n# asked: " + test.asks + "\n# Expected: ", 0),
      0u);
  EXPECT_NE(out.str().find("\n#   sent 68 bytes: "), std::string::npos);
  EXPECT_NE(out.str().find("\n#   got  52 bytes: "), std::string::npos);
}

TEST(Tests, have_rows_in_their_names_and_no_name_twice) {
  std::vector<std::string> names;
  for (const std::uint32_t version : {1u, 2u})
    for (const auto* test : tests_of(version)) {
      names.push_back(test->name);
      ASSERT_FALSE(rows_of(*test).empty()) << test->name;
      for (const std::string& row : rows_of(*test)) EXPECT_EQ(row.substr(0, 3), version == 1 ? "V1-" : "V2-");
    }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_EQ(rows_of({.name = "V1_001_V1_020_a", .level = {}, .needs = {}, .asks = "", .run = nullptr}),
            (std::vector<std::string>{"V1-001", "V1-020"}));
}

/// An upstream's address in any form: an IPv6 address is in brackets, and a link-local one has its interface.
TEST(TcpUpstreams, are_at_addresses_of_both_families_and_on_a_link) {
  const auto is_reached = [](const std::string& host, const PeerAddress& address) {
    const int listener = lab::listen_anywhere(address);
    ASSERT_GE(listener, 0);
    sockaddr_storage own{};
    socklen_t bytes = sizeof own;
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&own), &bytes);
    const std::uint16_t port =
        ntohs(reinterpret_cast<const sockaddr_in&>(own).sin_port);  // as in sockaddr_in6
    try {
      EXPECT_FALSE(TcpUpstream(host + ':' + std::to_string(port)).gone());
    } catch (const LinkError& error) {
      ADD_FAILURE() << error.what();
    }
    ::close(listener);
  };
  is_reached("127.0.0.1", *parse_address("127.0.0.1"));
  is_reached("[::1]", *parse_address("::1"));
  for (const char* const wrong : {"::1:2049", "[127.0.0.1]:2049", "[fe80::1%eth77]:2049", "nowhere", "[::1]"})
    EXPECT_THROW(TcpUpstream{wrong}, LinkError) << wrong;
  std::string why;
  std::thread([&] {
    why = make_link_of_own();
    if (why.empty()) is_reached("[" + std::string(kOnLinkOfOwn) + "]", *parse_address(kOnLinkOfOwn));
  }).join();
  if (!why.empty()) GTEST_SKIP() << why;
}

}  // namespace
}  // namespace sluice::conformance
