// SPDX-License-Identifier: Apache-2.0
//
// Isolation below RPC-over-RDMA. One client behaves. Beside it, frames arrive that any host on the network
// could send to the server, or a client answers nothing. All of the victim's calls are answered, its
// connection stays open, and each kind of frame is counted as what it is.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <ostream>
#include <random>
#include <vector>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/device.h"
#include "tests/conformance/lab.h"
#include "tests/conformance/raw_call.h"
#include "tests/driver/frame_builder.h"
#include "tests/driver/softroce_pair.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;
using sluice::conformance::Bytes;
using sluice::conformance::test_call;
using sluice::conformance::TestService;

constexpr std::uint32_t kMegabyte = 1u << 20;
constexpr std::uint32_t kFarOff = 0x10000;  ///< distance to every packet in flight
constexpr std::uint32_t kFirstPsn = 100;    ///< first PSN of a client

enum Client { kVictim, kHostile };

class RoceSite {
 public:
  RoceSite() : pair_({}), random_(1) {
    client_ = make_engine(pair_.left());
    server_ = make_engine(pair_.right());
    service_ = std::make_unique<TestService>(pair_.right());
    server_->add_service(*service_);
    memory_ = pair_.left().allocate_memory(4 * kMegabyte);
    for (const Client client : {kVictim, kHostile}) connect(client);
    pair_.wire().watch = [this](bool to_right, std::span<const std::byte> frame) { look(to_right, frame); };
  }
  ~RoceSite() {
    pair_.wire().watch = {};
    for (const Connected& link : links_)
      for (rpcrdma::Connection* const end : {link.client, link.server})
        end->close(rpcrdma::CloseReason::LocalClose);
    for (int i = 0; i < 2000; ++i) turn();
  }

  SoftRocePair& pair() { return pair_; }
  const Statistics& statistics() { return pair_.right().statistics(); }
  bool is_up(Client client) const {
    return links_[client].client->is_open() && links_[client].server->is_open();
  }
  std::uint32_t client_qp(Client client) const {
    return static_cast<std::uint32_t>(links_[client].client->queue_pair().number());
  }
  std::uint32_t random() { return static_cast<std::uint32_t>(random_()); }

  /// Number of frames that the server has sent to another Ethernet address than its clients'.
  std::uint64_t led_astray() const { return led_astray_; }

  // --- Used by tests that forge frames
  std::uint32_t victims_qp() const {
    return static_cast<std::uint32_t>(links_[kVictim].server->queue_pair().number());
  }
  /// Returns the server's queue pair of the other client, which has sent nothing.
  std::uint32_t hostile_qp() const {
    return static_cast<std::uint32_t>(links_[kHostile].server->queue_pair().number());
  }
  /// PSN of the victim's next request.
  std::uint32_t next_psn() const { return last_psn_ + 1; }
  Route victims_route() {
    Route route;
    route.source_mac = pair_.link_of_left();
    route.destination_mac = pair_.link_of_right();
    route.source = pair_.left().addresses()[0];
    route.destination = pair_.right().addresses()[0];
    return route;
  }
  void send(const Route& route, const Packet& packet, std::span<const std::byte> payload = {}) {
    forging_ = true;
    pair_.wire().inject(true, build_frame(route, packet, payload));
    forging_ = false;
  }

  // --- Calls
  struct Call {
    bool ended = false;
    bool good = false;
  };
  /// Submits a call: SINK by an RDMA Read, SOURCE by an RDMA Write, or one of two calls that fit into Sends.
  void submit(Client client, std::uint32_t procedure, Call& call) {
    const rdma::Sge piece{memory_.bytes.data() + client * 2 * kMegabyte, kMegabyte, memory_.lkey};
    const rpcrdma::WriteItem write{.pieces = {&piece, 1}};
    const rpcrdma::ReadItem read{.position = rpcrdma::Position{44}, .pieces = {&piece, 1}};
    Bytes payload = test_call(0, procedure);
    rpcrdma::Request request{.payload = {}, .max_reply_bytes = 64, .completion = &ended, .context = &call};
    if (procedure == TestService::kList) {
      payload = test_call(0, procedure, {8192});
      request.max_reply_bytes = 8192 + 64;
    } else if (procedure == TestService::kSource) {
      payload = test_call(0, procedure, {kMegabyte});
      request.writes = {&write, 1};
    } else if (procedure == TestService::kSink) {
      payload = test_call(0, procedure, {kMegabyte, 7});
      request.reads = {&read, 1};
    }
    request.payload = payload;
    ASSERT_TRUE(links_[client].requester->submit(request));
  }
  void turn() {
    pair_.carry();
    now_ns_ += 20'000;
    client_->poll(now_ns_);
    server_->poll(now_ns_);
  }

 private:
  struct Connected {
    std::unique_ptr<rpcrdma::Requester> requester;
    rpcrdma::Connection* client = nullptr;
    rpcrdma::Connection* server = nullptr;
  };

  static void ended(void* context, const rpcrdma::Reply& reply) noexcept {
    auto& call = *static_cast<Call*>(context);
    call.ended = true;
    call.good = reply.status() == rpcrdma::CallStatus::Ok;
  }
  static std::unique_ptr<rpcrdma::Engine> make_engine(Device& device) {
    rpcrdma::EngineConfig config;
    config.max_connections = 2;
    config.capacity.call_slots = 16;
    config.capacity.requests = 16;
    config.small_buffer_bytes = 16u << 10;
    config.call_buffers = config.reply_buffers = config.assembly_buffers = 4;
    return std::make_unique<rpcrdma::Engine>(device, config);
  }
  rpcrdma::Connection* open(rpcrdma::Engine& engine, Device& device, bool active,
                            rpcrdma::Requester* requester) {
    rpcrdma::Connection* const connection = engine.free_connection();
    rpcrdma::ConnectionConfig config;
    config.active = active;
    config.credit_grant = active ? 0 : 16;
    config.credits_requested = active ? 16 : 0;
    config.send_inline_bytes = config.receive_inline_bytes;
    connection->open(device.create_queue_pair(engine.queue_pair_limits()), config,
                     PeerAddress::from_ipv4(192, 0, 2, 9), requester);
    return connection;
  }
  void connect(Client client) {
    Connected& made = links_[client];
    made.requester = std::make_unique<rpcrdma::Requester>(client_->requester_context(), pair_.left(),
                                                          rpcrdma::RequesterConfig{.requests = 16});
    made.client = open(*client_, pair_.left(), true, made.requester.get());
    made.server = open(*server_, pair_.right(), false, nullptr);
    attach(*made.client, *made.server, pair_.left(), pair_.right(), pair_.link_of_right(), true);
    attach(*made.server, *made.client, pair_.right(), pair_.left(), pair_.link_of_left(), false);
    made.client->established();
    made.server->established();
  }
  static void attach(rpcrdma::Connection& own, rpcrdma::Connection& peer, SoftRoce& device, SoftRoce& other,
                     const LinkAddress& link, bool client) {
    RcAttributes attributes;
    attributes.local = device.addresses()[0];
    attributes.remote = other.addresses()[0];
    attributes.remote_link = link;
    attributes.remote_qp = peer.queue_pair().number();
    attributes.send_psn = client ? kFirstPsn : 200;
    attributes.receive_psn = client ? 200 : kFirstPsn;
    attributes.path_mtu = 4096;
    attributes.ack_timeout = 10;  // 4 ms
    (client ? attributes.responder_resources : attributes.initiator_depth) = 16;
    ASSERT_TRUE(own.queue_pair().connect(attributes));
  }
  /// Records the PSN of the victim's last request, and counts frames that the server sends to a wrong
  /// address.
  void look(bool to_right, std::span<const std::byte> bytes) {
    if (forging_) return;
    if (!to_right) {
      const LinkAddress clients = pair_.link_of_left();
      led_astray_ += std::memcmp(bytes.data(), clients.data(), clients.size()) != 0;
      return;
    }
    const Frame frame = parse(bytes);
    if (frame.kind != FrameKind::Roce) return;
    const auto packet = decode(bytes.subspan(frame.transport_offset));
    if (packet && packet->bth.destination_qp == victims_qp() && !packet->kind.has_aeth)
      last_psn_ = packet->bth.psn;
  }

  SoftRocePair pair_;
  std::mt19937 random_;
  std::unique_ptr<rpcrdma::Engine> client_;
  std::unique_ptr<rpcrdma::Engine> server_;
  std::unique_ptr<TestService> service_;
  Connected links_[2];
  MemoryRegion memory_;
  std::uint32_t last_psn_ = kFirstPsn - 1;
  bool forging_ = false;
  std::uint64_t led_astray_ = 0;
  std::uint64_t now_ns_ = 1;
};

// --- Forged frames

/// One kind of forged frame, and the counter that it increments.
struct Forgery {
  const char* name;
  void (*send)(RoceSite& site);
  std::uint64_t Statistics::*counted;
};

void PrintTo(const Forgery& forgery, std::ostream* to) {
  *to << forgery.name;
}

const Bytes& some_bytes() {
  static const Bytes bytes(64, std::byte{0x5a});
  return bytes;
}

const Bytes& management_datagram() {
  static const Bytes bytes(Datagram::kMaxBytes);
  return bytes;
}

constexpr MacAddress kElsewhere{2, 0, 0, 0, 0, 66};

Route route_from_elsewhere(RoceSite& site) {
  Route route = site.victims_route();
  route.source_mac = kElsewhere;
  return route;
}

void send_only(RoceSite& site, std::uint32_t psn) {
  site.send(site.victims_route(), make_packet(Opcode::SendOnly, site.victims_qp(), psn, some_bytes()),
            some_bytes());
}

constexpr PeerAddress kFloodingHost = PeerAddress::from_ipv4(192, 0, 2, 77);

void send_datagram(RoceSite& site, const PeerAddress& source) {
  Route route = site.victims_route();
  route.source = source;
  Packet packet =
      make_packet(Opcode::DatagramSendOnly, kManagementQueuePair, site.random(), management_datagram());
  packet.deth = {.queue_key = kManagementQueueKey, .source_qp = kManagementQueuePair};
  site.send(route, packet, management_datagram());
}

constexpr Forgery kForgeries[] = {
    {"requests_ahead_of_the_sequence",
     [](RoceSite& site) { send_only(site, site.next_psn() + kFarOff + site.random() % kFarOff); },
     &Statistics::sequence_errors},
    {"requests_behind_the_sequence",
     [](RoceSite& site) { send_only(site, site.next_psn() - kFarOff - site.random() % kFarOff); },
     &Statistics::duplicates},
    {"reads_ahead_of_the_sequence",
     [](RoceSite& site) {
       Packet packet = make_packet(Opcode::ReadRequest, site.victims_qp(), site.next_psn() + kFarOff);
       packet.reth = {.address = site.random(), .rkey = site.random(), .length = kMegabyte};
       site.send(site.victims_route(), packet);
     },
     &Statistics::sequence_errors},
    {"acknowledgements_of_nothing",
     [](RoceSite& site) {
       site.send(site.victims_route(),
                 make_packet(Opcode::Acknowledge, site.victims_qp(), kFarOff * (2 + site.random() % 16)));
     },
     &Statistics::stale_responses},
    {"refusals_of_nothing",
     [](RoceSite& site) {
       Packet packet =
           make_packet(Opcode::Acknowledge, site.victims_qp(), kFarOff * (2 + site.random() % 16));
       packet.aeth = {.syndrome = Syndrome::Nak, .value = static_cast<std::uint8_t>(site.random() % 4)};
       site.send(site.victims_route(), packet);
     },
     &Statistics::stale_responses},
    {"the_right_number_from_another_address",
     [](RoceSite& site) {
       Route route = site.victims_route();
       route.source = PeerAddress::from_ipv4(192, 0, 2, static_cast<std::uint8_t>(77 + site.random() % 100));
       site.send(route, make_packet(Opcode::SendOnly, site.victims_qp(), site.next_psn(), some_bytes()),
                 some_bytes());
     },
     &Statistics::wrong_peer},
    {"requests_from_another_ethernet_address",
     [](RoceSite& site) {
       const std::uint32_t psn = site.next_psn() + kFarOff + site.random() % kFarOff;
       site.send(route_from_elsewhere(site),
                 make_packet(Opcode::SendOnly, site.victims_qp(), psn, some_bytes()), some_bytes());
     },
     &Statistics::sequence_errors},
    {"acknowledgements_from_another_ethernet_address",
     [](RoceSite& site) {
       site.send(route_from_elsewhere(site),
                 make_packet(Opcode::Acknowledge, site.victims_qp(), kFarOff * (2 + site.random() % 16)));
     },
     &Statistics::stale_responses},
    {"the_right_number_for_another_ethernet_address",
     [](RoceSite& site) {
       Route route = site.victims_route();
       route.destination_mac = kElsewhere;
       site.send(route, make_packet(Opcode::SendOnly, site.victims_qp(), site.next_psn(), some_bytes()),
                 some_bytes());
     },
     &Statistics::frames_misaddressed},
    {"the_right_number_with_a_wrong_check",
     [](RoceSite& site) {
       auto frame = build_frame(
           site.victims_route(),
           make_packet(Opcode::SendOnly, site.victims_qp(), site.next_psn(), some_bytes()), some_bytes());
       frame.back() ^= std::byte{1};
       site.pair().wire().inject(true, frame);
     },
     &Statistics::icrc_errors},
    {"requests_behind_a_gap_that_never_closes",
     [](RoceSite& site) {
       const std::uint32_t psn = kFirstPsn + 1 + site.random() % 512;
       site.send(site.victims_route(), make_packet(Opcode::SendOnly, site.hostile_qp(), psn, some_bytes()),
                 some_bytes());
     },
     &Statistics::early_dropped},
    {"more_management_datagrams_than_its_share", [](RoceSite& site) { send_datagram(site, kFloodingHost); },
     &Statistics::datagrams_dropped},
    {"segments_and_datagrams_for_services_that_there_are_not",
     [](RoceSite& site) {
       Route route = site.victims_route();
       auto frame = build_frame(route, make_packet(Opcode::SendOnly, site.victims_qp(), 0, some_bytes()),
                                some_bytes());
       store_be16(frame.data() + kEthernetBytes + kIpv4Bytes + 2, 111);  // UDP port of rpcbind
       site.pair().wire().inject(true, frame);
     },
     &Statistics::frames_ignored},  // beyond the rate, or all if the kernel here has the address
    {"unknown_queue_pairs",
     [](RoceSite& site) {
       const std::uint32_t number = (site.victims_qp() + 8 + site.random() % 0xffff) & 0xffffff;
       site.send(site.victims_route(), make_packet(Opcode::SendOnly, number, site.random(), some_bytes()),
                 some_bytes());
     },
     &Statistics::unknown_queue_pair},
};

constexpr std::uint32_t kProcedures[] = {TestService::kNull, TestService::kList, TestService::kSource,
                                         TestService::kSink};

/// Checks that each of the victim's calls is answered. `beside` runs in every iteration.
template <typename Beside>
void serve_victim(RoceSite& site, int rounds, Beside&& beside) {
  // Generous: it only limits how long a failing test runs.
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int round = 0; round < rounds; ++round)
    for (const std::uint32_t procedure : kProcedures) {
      RoceSite::Call call;
      site.submit(kVictim, procedure, call);
      while (!call.ended && site.is_up(kVictim) && std::chrono::steady_clock::now() < give_up) {
        site.turn();
        beside();
      }
      ASSERT_TRUE(call.ended && call.good) << "procedure " << procedure << " in round " << round;
    }
  EXPECT_TRUE(site.is_up(kVictim));
}

class RoceIsolation : public testing::TestWithParam<Forgery> {};

TEST_P(RoceIsolation, the_victim_is_served) {
  RoceSite site;
  const std::uint64_t before = site.statistics().*GetParam().counted;
  serve_victim(site, 5, [&] {
    for (int i = 0; i < 4; ++i) GetParam().send(site);
  });
  EXPECT_GT(site.statistics().*GetParam().counted, before);
  EXPECT_EQ(site.led_astray(), 0u);
}

INSTANTIATE_TEST_SUITE_P(, RoceIsolation, testing::ValuesIn(kForgeries),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

/// A host sends more datagrams than the control plane takes.
TEST(RoceIsolationOfDatagrams, a_flood_of_one_host_leaves_room_for_those_of_another) {
  constexpr std::uint64_t kTurnsOfADatagram = 8;
  RoceSite site;
  std::uint64_t turns = 0, sent = 0, taken = 0;
  const auto take = [&] {
    Datagram datagrams[2];
    const std::size_t count = site.pair().right().receive_datagrams(datagrams);
    for (const Datagram& datagram : std::span(datagrams, count)) taken += datagram.remote != kFloodingHost;
    return count;
  };
  const std::uint64_t dropped = site.statistics().datagrams_dropped;
  serve_victim(site, 5, [&] {
    for (int i = 0; i < 4; ++i) send_datagram(site, kFloodingHost);
    if (++turns % kTurnsOfADatagram == 0) {
      send_datagram(site, site.victims_route().source);
      ++sent;
    }
    take();
  });
  site.turn();
  while (take() > 0) {
  }
  EXPECT_GT(site.statistics().datagrams_dropped, dropped);
  EXPECT_GT(sent, 0u);
  EXPECT_EQ(taken, sent);
}

// --- A connected client that answers nothing

TEST(RoceIsolationOfReads, reads_that_are_never_answered_hold_up_nobody_else) {
  RoceSite site;
  serve_victim(site, 1, [] {});
  const std::uint32_t deaf = site.client_qp(kHostile);
  std::uint64_t lost = 0;
  site.pair().wire().lose = [&](bool to_right, std::span<const std::byte> bytes) {
    if (to_right) return false;
    const Frame frame = parse(bytes);
    if (frame.kind != FrameKind::Roce) return false;
    const auto packet = decode(bytes.subspan(frame.transport_offset));
    if (!packet || packet->bth.destination_qp != deaf || packet->bth.opcode != Opcode::ReadRequest)
      return false;
    ++lost;
    return true;
  };
  RoceSite::Call null;
  site.submit(kHostile, TestService::kNull, null);  // the reply grants the credits
  while (!null.ended) site.turn();
  RoceSite::Call sinks[4];
  for (RoceSite::Call& sink : sinks) site.submit(kHostile, TestService::kSink, sink);
  serve_victim(site, 5, [] {});
  EXPECT_GT(lost, 0u);
  for (const RoceSite::Call& sink : sinks) EXPECT_FALSE(sink.ended && sink.good);
  site.pair().wire().lose = {};
}

}  // namespace
}  // namespace sluice::rdma::conformance
