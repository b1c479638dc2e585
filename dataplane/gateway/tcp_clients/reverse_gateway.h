// SPDX-License-Identifier: Apache-2.0
//
// The reverse gateway: clients use RPC over TCP, and the server uses RPC-over-RDMA. A client that has calls
// is assigned a connection to the server. Only the owning reactor may call; the constructor is setup.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/thread_owner.h"
#include "dataplane/gateway/rdma_server/server_side.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/gateway/tcp_clients/hosts.h"
#include "dataplane/gateway/tcp_clients/tcp_client.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/tcp/uring.h"

namespace sluice::tcp_clients {

/// The listening socket for TCP clients, shared by all reactors. A reactor accepts while it has a free place,
/// so a client reaches a reactor with room. If no reactor has room, a reactor that can evict a client
/// accepts. Otherwise the client waits in the kernel. The main thread creates and destroys the listener; any
/// thread may use the descriptor.
class Listener {
 public:
  /// Setup. Throws SetupError if the socket cannot listen on the address.
  Listener(const sockaddr_storage& address, socklen_t address_bytes);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// Records that the calling reactor has a free place again, or has none left. Any reactor may call.
  void note_room(bool has_room) noexcept {
    with_room_.fetch_add(has_room ? 1 : -1, std::memory_order_relaxed);
  }
  /// Returns true if some reactor has a place for a client.
  bool has_room() const noexcept { return with_room_.load(std::memory_order_relaxed) > 0; }

  int descriptor() const noexcept { return descriptor_; }
  /// Returns the port in host byte order.
  std::uint16_t port() const noexcept;

 private:
  int descriptor_;
  std::atomic<int> with_room_{0};  ///< number of reactors with a free place
};

/// Period in nanoseconds of checking clients for overdue calls, records and replies.
inline constexpr std::uint64_t kTickNs = 20'000'000;
/// Divisor of a host's share: a host keeps 1/kShareOfPlaces of the places for connections in use while a
/// newcomer waits.
inline constexpr std::uint32_t kShareOfPlaces = 4;
/// Minimum time in nanoseconds for which a connection in use keeps its place after accept, and an idle
/// connection after its last bytes.
inline constexpr std::uint64_t kLeastStayNs = 5'000'000'000;
/// Minimum time in nanoseconds between two evictions, in which the first evicted connection can be closed.
inline constexpr std::uint64_t kDrainNs = 1'000'000'000;

struct ReverseGatewayConfig {
  std::vector<segment::AllowedPrefix> allowed;  ///< client addresses; empty: every address
  bool privileged_clients = false;              ///< true: refuses source ports that are not below 1024
  std::uint32_t clients = 256;                  ///< maximum number of TCP connections
  rdma_server::Server server{};
  rdma_server::ServerSideConfig server_side{};
  UringFeatures uring = UringFeatures::all();  ///< features to use if the kernel supports them
};

class ReverseGateway final : public service::Poller {
 public:
  using Counter = segment::ReverseCounter;

  /// Setup. The references and `clock` outlive this object.
  ReverseGateway(rpcrdma::Engine& engine, rdma_server::Dialer& dialer, Listener& listener,
                 const ReverseGatewayConfig& config, segment::ReverseArea& area, Clock clock);
  ~ReverseGateway() override;
  ReverseGateway(const ReverseGateway&) = delete;
  ReverseGateway& operator=(const ReverseGateway&) = delete;

  bool poll(std::uint64_t now_ns) noexcept override;

  // The clients call the next functions.
  rdma_server::ServerSide& server() noexcept { return server_; }
  void on_free(TcpClient& client) noexcept;
  const rdma_server::ServerSideConfig& config() const noexcept { return server_.config(); }
  tcp::Uring& uring() noexcept { return uring_; }
  std::uint64_t now_ns() const noexcept { return clock_(); }
  // A client calls each of the next two functions at most once until the next poll().
  void schedule_flush(TcpClient& client) noexcept {
    SLUICE_INVARIANT_DEBUG(to_flush_.size() < clients_.size(), list_membership);
    to_flush_.push_back(&client);
  }
  void schedule_resume(TcpClient& client) noexcept { waiting_.push_back(client); }
  segment::ReverseArea& area() noexcept { return area_; }
  void count(Counter counter, std::uint64_t amount = 1) noexcept {
    auto& value = area_.counters[static_cast<std::size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }

 private:
  /// An accepted connection that waits for a place.
  struct Newcomer {
    int socket = -1;
    PeerAddress address{};
  };
  void accept() noexcept;
  void on_accepted(int result) noexcept;
  bool is_allowed(const PeerAddress& peer) const noexcept;
  void admit(const Newcomer& newcomer) noexcept;
  void consider(TcpClient& client, std::uint64_t now_ns) noexcept;
  void end_round(std::uint64_t now_ns) noexcept;
  bool may_displace(const TcpClient& client, std::uint32_t own) const noexcept;
  void resume_waiting() noexcept;
  void look_at_clients(std::uint64_t now_ns) noexcept;
  void publish() noexcept;

  const std::vector<segment::AllowedPrefix> allowed_;
  const bool privileged_clients_;
  Listener& listener_;
  segment::ReverseArea& area_;
  const Clock clock_;
  tcp::Uring uring_;
  rdma_server::ServerSide server_;
  Hosts hosts_;
  const std::uint32_t share_;  ///< number of places that a host keeps for connections in use
  std::vector<Owned<TcpClient>> clients_;
  FixedStack<TcpClient*> free_clients_;
  std::vector<TcpClient*> to_flush_;
  rdma_server::ReleaseWaiters<TcpClient, &TcpClient::waiting_link> waiting_;
  PacedRound clients_round_{kTickNs};
  std::uint32_t next_looked_at_ = 0;
  bool accepting_ = false;
  bool accept_failed_ = false;  ///< true: accepting is retried at the next tick
  bool full_ = false;           ///< true: all places are in use
  bool evictable_ = false;      ///< true: the last round has found a client that a newcomer may displace
  Newcomer newcomer_;
  TcpClient* idlest_ = nullptr;   ///< idle client that this round would evict
  TcpClient* busiest_ = nullptr;  ///< client in use that this round would drain
  std::uint64_t evict_again_ns_ = 0;
  sockaddr_storage peer_{};  ///< address of the next client
  socklen_t peer_bytes_ = 0;
  std::uint64_t ticked_ns_ = 0;
  ThreadOwner owner_;  ///< thread that polls
};

}  // namespace sluice::tcp_clients
