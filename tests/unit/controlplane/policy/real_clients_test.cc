// SPDX-License-Identifier: Apache-2.0
//
// Credit policy with real clients: requesters over loopback, a reactor that serves them, and the control
// plane's credit keeper on the segment between them. One thread; the test's clock advances by a millisecond
// per iteration.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "controlplane/policy/credit_controller.h"
#include "dataplane/reactor/reactor.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/null.h"
#include "pmd/loopback/loopback.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::policy {
namespace {

constexpr std::uint16_t kPort = 20049;
constexpr std::uint32_t kMostClients = 16;
constexpr std::uint32_t kMaxCredits = 64;
constexpr std::uint64_t kTurnNs = 1'000'000;

std::uint64_t now_ns;
std::uint64_t clock() noexcept {
  return now_ns;
}

rpcrdma::EngineConfig engine_config(std::uint32_t call_slots) {
  rpcrdma::EngineConfig config;
  config.max_connections = kMostClients;
  config.capacity.call_slots = call_slots;
  config.capacity.requests = kMaxCredits;
  config.call_buffers = config.reply_buffers = config.assembly_buffers = 1;
  return config;
}

struct Client {
  std::unique_ptr<rpcrdma::Requester> requester;
  rpcrdma::Connection* connection = nullptr;
  std::uint32_t depth = 0;  ///< calls that are always outstanding
  std::uint32_t burst = 0;  ///< calls submitted together
  std::uint64_t burst_each_ns = 0;
  std::uint64_t next_burst_ns = 0;
  std::uint64_t submitted = 0, answered = 0;
  std::uint32_t least_granted = kMaxCredits;  ///< since forget()
};

class RealClients : public ::testing::Test {
 protected:
  void start(const std::string& policy) {
    now_ns = 1'000'000'000'000;
    config_ = lab::configuration("[policy]\n" + policy);
    credits_ = std::make_unique<CreditController>(segment_.layout(), config_.credit_settings());
    engine_.add_service(null_);
    reactor_ =
        std::make_unique<reactor::Reactor>(reactor::ReactorConfig{}, engine_, segment_.layout(), &clock);
    server_->connection_manager()->listen(kPort);
  }
  void TearDown() override {
    for (Client& client : clients_) client.connection->close(rpcrdma::CloseReason::LocalClose);
    for (int i = 0; i < 100; ++i) client_engine_.poll(now_ns);
    for (std::uint16_t i = 0; i < kMostClients; ++i)
      engine_.connection(i).close(rpcrdma::CloseReason::LocalClose);
    for (int i = 0; i < 100; ++i) engine_.poll(now_ns);
  }

  Client& connect() {
    Client& client = clients_.emplace_back();
    client.requester = std::make_unique<rpcrdma::Requester>(
        client_engine_.requester_context(), *device_,
        rpcrdma::RequesterConfig{
            .requests = 2 * kMaxCredits, .credits_requested = kMaxCredits, .windows = 0, .long_buffers = 0});
    client.connection = client_engine_.free_connection();
    auto qp = device_->create_queue_pair(client_engine_.queue_pair_limits());
    rdma::QueuePair& queue_pair = *qp;
    client.connection->open(std::move(qp),
                            {.credit_grant = 0, .credits_requested = kMaxCredits, .active = true}, {},
                            client.requester.get());
    EXPECT_TRUE(device_->connection_manager()->connect(queue_pair, kPort, rpcrdma::encode_private_data({})));
    for (int i = 0; i < 10'000 && !client.requester->connected(); ++i) turn();
    EXPECT_TRUE(client.requester->connected());
    return client;
  }

  void turn() {
    now_ns += kTurnNs;
    // The server polls more than once while a reply is on its way. All calls of a burst that fits its
    // client's grant have arrived before the first of their replies is known to be sent.
    reactor_->poll_once();
    reactor_->poll_once();
    rdma::CmEvent events[4];
    const std::size_t count = device_->connection_manager()->poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, count))
      if (event.type == rdma::CmEventType::Established) clients_.back().connection->established();
    client_engine_.poll(now_ns);
    for (Client& client : clients_) make_calls(client);
    answer_requests();
    credits_->poll(now_ns);
  }
  void pass(double seconds) {
    for (auto turns = static_cast<std::uint64_t>(seconds * 1e9) / kTurnNs; turns-- > 0;) turn();
  }
  /// Restarts the statistics of grants and changes.
  void forget() {
    for (Client& client : clients_) client.least_granted = kMaxCredits;
    changes_before_ = credits_->statistics().changes;
  }
  std::uint64_t changes() const { return credits_->statistics().changes - changes_before_; }
  /// Returns the grant that the client knows from its latest reply.
  static std::uint32_t known(const Client& client) {
    return static_cast<std::uint32_t>(client.requester->granted());
  }
  std::uint32_t granted(std::size_t number) {
    return static_cast<std::uint32_t>(
        engine_.connection(static_cast<std::uint16_t>(number)).responder().grant());
  }
  std::uint64_t all_granted() {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < clients_.size(); ++i) sum += granted(i);
    return sum;
  }

  std::vector<Client> clients_;

 private:
  /// Plays the control plane's part in establishing connections.
  void answer_requests() {
    segment::Event event;
    while (segment_.layout().reactors[0].events.pop(event)) {
      if (event.type != segment::EventType::ConnectRequest) continue;
      const CreditController::Start start = credits_->start_of(0, event.peer);
      EXPECT_TRUE(segment_.layout().reactors[0].commands.push({.type = segment::CommandType::Accept,
                                                               .cm_id = event.cm_id,
                                                               .credits = kMaxCredits,
                                                               .first_grant = start.credits,
                                                               .client_class = start.client_class,
                                                               .receive_inline_bytes = 4096,
                                                               .send_inline_bytes = 4096}));
    }
  }
  void make_calls(Client& client) {
    if (!client.requester->connected()) return;
    client.least_granted = std::min(client.least_granted, known(client));
    std::uint32_t wanted = client.depth;
    if (client.burst > 0 && now_ns >= client.next_burst_ns) {
      client.next_burst_ns = now_ns + client.burst_each_ns;
      wanted = std::max(wanted, client.burst);
    }
    while (client.submitted - client.answered < wanted && call(client)) ++client.submitted;
  }
  static bool call(Client& client) {
    std::array<std::byte, 40> message{};
    xdr::Writer writer(message);
    rpc::encode_call(writer, {.program = service::kNullProgram,
                              .version = service::kNullVersion,
                              .procedure = service::kNullProcedure,
                              .credential = {},
                              .verifier = {}});
    return client.requester
        ->submit({.payload = {message.data(), writer.position()},
                  .max_reply_bytes = 64,
                  .completion =
                      [](void* context, const rpcrdma::Reply& reply) noexcept {
                        *static_cast<std::uint64_t*>(context) += reply.status() == rpcrdma::CallStatus::Ok;
                      },
                  .context = &client.answered})
        .has_value();
  }

  lab::TestSegment segment_{"real-clients"};
  config::Config config_;
  std::unique_ptr<CreditController> credits_;
  std::shared_ptr<rdma::loopback::Fabric> fabric_ = rdma::loopback::Fabric::in_process({.links = 32});
  std::unique_ptr<rdma::Device> server_ = rdma::loopback::make_device(fabric_, {.name = "server"});
  std::unique_ptr<rdma::Device> device_ = rdma::loopback::make_device(fabric_, {.name = "clients"});
  rpcrdma::Engine engine_{*server_, engine_config(kMaxCredits)};
  rpcrdma::Engine client_engine_{*device_, engine_config(0)};
  service::NullService null_;
  std::unique_ptr<reactor::Reactor> reactor_;
  std::uint64_t changes_before_ = 0;
};

TEST_F(RealClients, nobody_idle_loses_credits_while_there_is_enough) {
  start("idle_s = 5\n");
  clients_.reserve(kMostClients);
  for (int i = 0; i < 4; ++i) connect();
  clients_[0].burst = 1;
  clients_[0].burst_each_ns = 1'000'000'000;
  clients_[1].depth = 64;
  pass(3);
  forget();
  clients_[1].depth = 0;
  pass(30);
  for (std::size_t i = 0; i < clients_.size(); ++i) EXPECT_EQ(granted(i), kMaxCredits) << i;
  EXPECT_EQ(changes(), 0u);
  // A client that becomes active again has all of its credits immediately.
  const std::uint64_t before = clients_[1].answered;
  clients_[1].burst = 64;
  clients_[1].burst_each_ns = 1'000'000'000'000;
  pass(0.01);
  EXPECT_EQ(clients_[1].answered - before, 64u);
}

TEST_F(RealClients, a_burst_fills_what_others_leave_and_grants_settle) {
  start("slots = 256\nidle_s = 5\n");
  clients_.reserve(kMostClients);
  for (std::uint32_t i = 0; i < kMostClients; ++i) connect();
  // 13 clients are steady, two are idle, and one is bursty.
  for (std::uint32_t i = 0; i < 13; ++i)
    clients_[i].depth = 3;  // a slot is in use until the reply is known to be sent: up to six
  Client& bursty = clients_[15];
  bursty.burst = 64;
  bursty.burst_each_ns = 50'000'000;
  pass(15);
  EXPECT_EQ(known(bursty), kMaxCredits);
  forget();
  pass(60);
  EXPECT_EQ(bursty.least_granted, kMaxCredits) << "and stays so";
  for (std::uint32_t i = 0; i < 13; ++i) EXPECT_GE(clients_[i].least_granted, 6u) << i;
  EXPECT_LE(all_granted(), 256u);
  EXPECT_GE(all_granted(), 250u) << "nothing lies unused";
  EXPECT_LE(changes(), kMostClients) << "in 120 recomputations";
}

TEST_F(RealClients, where_slots_are_short_all_have_the_same_and_keep_it) {
  start("slots = 256\nidle_s = 5\n");
  clients_.reserve(kMostClients);
  for (std::uint32_t i = 0; i < kMostClients; ++i) connect().depth = 64;
  pass(10);
  for (std::uint32_t i = 0; i < kMostClients; ++i) EXPECT_EQ(known(clients_[i]), 16u) << i;
  forget();
  pass(30);
  EXPECT_EQ(changes(), 0u);
  EXPECT_LE(all_granted(), 256u);
}

}  // namespace
}  // namespace sluice::policy
