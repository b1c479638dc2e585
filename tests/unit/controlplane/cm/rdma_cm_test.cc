// SPDX-License-Identifier: Apache-2.0
//
// Connection management by librdmacm. This file replaces the library functions that RdmaCm calls: the test
// supplies the events, and determines how long the destruction of an identifier takes.
#include "controlplane/cm/rdma_cm.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "dataplane/base/sockets.h"

namespace {

/// State of the library and the kernel. Any thread destroys identifiers; only the test's thread uses the
/// remainder.
struct Kernel {
  rdma_cm_id* make(rdma_event_channel* channel, void* context) {
    const std::lock_guard lock(mutex);
    auto* id = new rdma_cm_id{};
    id->channel = channel;
    id->context = context;
    id->verbs = &verbs;
    ids.insert(id);
    return id;
  }
  void destroy(rdma_cm_id* id) {
    std::unique_lock lock(mutex);
    if (std::this_thread::get_id() == caller)
      ++destroyed_by_the_caller;
    else
      released.wait(lock, [this] { return !holds; });
    ids.erase(id);
    delete id;
  }
  void release() {
    const std::lock_guard lock(mutex);
    holds = false;
    released.notify_all();
  }

  std::mutex mutex;
  std::condition_variable released;
  bool holds = false;  ///< destruction of identifiers blocks
  std::set<rdma_cm_id*> ids;
  std::uint32_t destroyed_by_the_caller = 0;
  const std::thread::id caller = std::this_thread::get_id();

  ibv_device device{};
  ibv_context verbs{.device = &device,
                    .ops = {},
                    .cmd_fd = -1,
                    .async_fd = -1,
                    .num_comp_vectors = 1,
                    .mutex = PTHREAD_MUTEX_INITIALIZER,
                    .abi_compat = nullptr};
  std::deque<rdma_cm_event> events;
  std::uint32_t acknowledged = 0;
  std::uint32_t accepted = 0;
  std::uint32_t disconnected = 0;
  int device_reads = 16;                   ///< limit of outstanding RDMA Reads, in each direction
  std::optional<rdma_conn_param> offered;  ///< by the last rdma_connect() or rdma_accept()
  std::optional<sockaddr_in6> source;      ///< of the last address resolution
  sockaddr_in6 destination{};
};

Kernel* kernel = nullptr;

}  // namespace

extern "C" {

rdma_event_channel* rdma_create_event_channel(void) {
  return new rdma_event_channel{.fd = ::dup(STDIN_FILENO)};
}
void rdma_destroy_event_channel(rdma_event_channel* channel) {
  ::close(channel->fd);
  delete channel;
}
int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space) {
  *id = kernel->make(channel, context);
  return 0;
}
int rdma_destroy_id(rdma_cm_id* id) {
  kernel->destroy(id);
  return 0;
}
int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  for (auto each = kernel->events.begin(); each != kernel->events.end(); ++each) {
    if (each->id->channel != channel) continue;
    *event = new rdma_cm_event(*each);
    kernel->events.erase(each);
    return 0;
  }
  return -1;
}
int rdma_ack_cm_event(rdma_cm_event* event) {
  ++kernel->acknowledged;
  delete event;
  return 0;
}
int rdma_accept(rdma_cm_id*, rdma_conn_param* parameters) {
  kernel->offered = *parameters;
  ++kernel->accepted;
  return 0;
}
int rdma_disconnect(rdma_cm_id*) {
  ++kernel->disconnected;
  return 0;
}
int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  id->channel = channel;
  return 0;
}
int rdma_bind_addr(rdma_cm_id*, sockaddr*) {
  return 0;
}
int rdma_listen(rdma_cm_id*, int) {
  return 0;
}
int rdma_resolve_addr(rdma_cm_id*, sockaddr* from, sockaddr* to, int) {
  kernel->source.reset();
  if (from != nullptr) std::memcpy(&kernel->source.emplace(), from, sizeof(sockaddr_in6));
  std::memcpy(&kernel->destination, to, sizeof(sockaddr_in6));
  return 0;
}
int rdma_resolve_route(rdma_cm_id*, int) {
  return 0;
}
int rdma_connect(rdma_cm_id*, rdma_conn_param* parameters) {
  kernel->offered = *parameters;
  return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = {};
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = kernel->device_reads;
  return 0;
}
int rdma_init_qp_attr(rdma_cm_id*, ibv_qp_attr*, int*) {
  return 0;
}
__be16 rdma_get_src_port(rdma_cm_id*) {
  return 0;
}

}  // extern "C"

namespace sluice::cm {
namespace {

class RdmaCmTest : public testing::Test, private RdmaCm::Host {
 protected:
  RdmaCmTest() {
    kernel = &kernel_;
    manager_.emplace(static_cast<RdmaCm::Host&>(*this), RdmaCmOptions{});
    manager_->listen(20049);
    channel_ = (*kernel_.ids.begin())->channel;
  }
  ~RdmaCmTest() override {
    kernel_.release();
    manager_.reset();
    EXPECT_TRUE(kernel_.ids.empty()) << "each identifier is destroyed in the end";
    EXPECT_EQ(kernel_.destroyed_by_the_caller, 0u);
  }

  void add_event(rdma_cm_event_type type, rdma_cm_id* id) {
    rdma_cm_event event{};
    event.id = id;
    event.event = type;
    kernel_.events.push_back(event);
  }
  /// Completes a client's request up to an established connection.
  rdma_cm_id* connect() {
    rdma_cm_id* const id = kernel_.make(channel_, nullptr);
    add_event(RDMA_CM_EVENT_CONNECT_REQUEST, id);
    manager_->poll();
    EXPECT_TRUE(manager_->accept(requests_.back(), 17, {}));
    add_event(RDMA_CM_EVENT_ESTABLISHED, id);
    manager_->poll();
    return id;
  }
  void peer_disconnects(rdma_cm_id* id) {
    add_event(RDMA_CM_EVENT_DISCONNECTED, id);
    manager_->poll();
  }

  Kernel kernel_;
  std::optional<RdmaCm> manager_;
  rdma_event_channel* channel_ = nullptr;  ///< of the listener
  std::vector<Id> requests_;
  rdma::RcAttributes attributes_;  ///< of the last request
  std::vector<Id> established_;
  std::vector<Id> disconnected_;

 private:
  void on_request(Id id, const RdmaCmPeer& peer) override {
    requests_.push_back(id);
    attributes_ = peer.attributes;
  }
  void on_reply(Id, const RdmaCmPeer&) override {}
  void on_established(Id id) override { established_.push_back(id); }
  void on_rejected(Id, const std::string&, std::span<const std::byte>) override {}
  void on_disconnected(Id id) override {
    disconnected_.push_back(id);
    manager_->disconnect(id);
  }
};

TEST_F(RdmaCmTest, others_connect_while_the_kernel_is_busy_with_the_end_of_a_connection) {
  kernel_.holds = true;
  peer_disconnects(connect());
  EXPECT_EQ(kernel_.disconnected, 1u);
  rdma_cm_id* const other = connect();
  EXPECT_EQ(kernel_.accepted, 2u);
  EXPECT_EQ(established_.size(), 2u);
  EXPECT_EQ(disconnected_.size(), 1u);
  peer_disconnects(other);
  EXPECT_EQ(disconnected_.size(), 2u);
}

TEST_F(RdmaCmTest, an_end_that_takes_long_is_told_once) {
  EXPECT_EQ(manager_->stuck(0), 0u);
  EXPECT_EQ(manager_->stuck(IdDestroyer::kLongNs), 0u) << "nothing is to be destroyed";
  kernel_.holds = true;
  peer_disconnects(connect());
  peer_disconnects(connect());
  EXPECT_EQ(manager_->stuck(2 * IdDestroyer::kLongNs - 1), 0u);
  EXPECT_EQ(manager_->stuck(2 * IdDestroyer::kLongNs), 2u);
  EXPECT_EQ(manager_->stuck(9 * IdDestroyer::kLongNs), 0u);
}

TEST_F(RdmaCmTest, events_of_an_identifier_that_is_being_destroyed_are_acknowledged_and_change_nothing) {
  kernel_.holds = true;
  rdma_cm_id* const id = connect();
  peer_disconnects(id);
  const std::uint32_t before = kernel_.acknowledged;
  peer_disconnects(id);
  EXPECT_EQ(kernel_.acknowledged, before + 1);
  EXPECT_EQ(disconnected_.size(), 1u);
  EXPECT_EQ(kernel_.disconnected, 1u);
}

TEST_F(RdmaCmTest, a_peer_is_offered_no_more_reads_than_the_device_allows) {
  kernel_.device_reads = 4;
  ASSERT_TRUE(manager_->connect({}, PeerAddress::from_ipv4(192, 0, 2, 1), 20049, 17, {}));
  rdma_cm_id* own = nullptr;
  for (rdma_cm_id* const id : kernel_.ids)
    if (id->context != nullptr) own = id;
  ASSERT_NE(own, nullptr);
  add_event(RDMA_CM_EVENT_ADDR_RESOLVED, own);
  add_event(RDMA_CM_EVENT_ROUTE_RESOLVED, own);
  manager_->poll();
  ASSERT_TRUE(kernel_.offered);
  EXPECT_EQ(kernel_.offered->responder_resources, 4);
  EXPECT_EQ(kernel_.offered->initiator_depth, 4);

  kernel_.offered.reset();
  rdma_cm_id* const id = kernel_.make(channel_, nullptr);
  add_event(RDMA_CM_EVENT_CONNECT_REQUEST, id);
  kernel_.events.back().param.conn.responder_resources = 16;
  kernel_.events.back().param.conn.initiator_depth = 2;
  manager_->poll();
  EXPECT_EQ(attributes_.responder_resources, 4);
  EXPECT_EQ(attributes_.initiator_depth, 2) << "the peer allows fewer";
  ASSERT_TRUE(manager_->accept(requests_.back(), 17, {}));
  ASSERT_TRUE(kernel_.offered);
  EXPECT_EQ(kernel_.offered->responder_resources, 4);
  EXPECT_EQ(kernel_.offered->initiator_depth, 2);
  peer_disconnects(id);
}

TEST_F(RdmaCmTest, a_link_local_address_keeps_its_zone_in_both_directions) {
  constexpr std::uint32_t kZone = 3;
  PeerAddress own{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
  PeerAddress server{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  server.zone = kZone;
  ASSERT_TRUE(manager_->connect(own, server, 20049, 17, {}));
  EXPECT_EQ(kernel_.destination.sin6_scope_id, kZone);
  ASSERT_TRUE(kernel_.source);
  EXPECT_EQ(kernel_.source->sin6_scope_id, kZone) << "the device's address is on the server's link";
  ASSERT_TRUE(manager_->connect(own, PeerAddress::from_ipv4(192, 0, 2, 1), 20049, 17, {}));
  EXPECT_FALSE(kernel_.source) << "no link is known, so the kernel chooses";

  rdma_cm_id* const id = kernel_.make(channel_, nullptr);
  socket_address(server, 20049, id->route.addr.dst_storage);
  own.zone = kZone;
  socket_address(own, 20049, id->route.addr.src_storage);
  add_event(RDMA_CM_EVENT_CONNECT_REQUEST, id);
  manager_->poll();
  EXPECT_EQ(attributes_.remote, server);
  EXPECT_EQ(attributes_.local, own);
}

}  // namespace
}  // namespace sluice::cm
