// SPDX-License-Identifier: Apache-2.0
//
// The reverse gateway: clients use RPC over TCP, the server RPC-over-RDMA. A client that has calls is lent a
// connection to the server. Only the owning reactor may call; the constructor is setup.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/fixed_stack.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/paced_round.h"
#include "dataplane/gateway/rdma_server/release_waiters.h"
#include "dataplane/gateway/rdma_server/server_side.h"
#include "dataplane/gateway/tcp_clients/hosts.h"
#include "dataplane/gateway/tcp_clients/listener.h"
#include "dataplane/gateway/tcp_clients/tcp_client.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/ingress.h"
#include "dataplane/tcp/uring.h"

namespace sluice::tcp_clients {

/// Period of checking clients for overdue calls, records and replies.
inline constexpr std::uint64_t kTickNs = 20'000'000;
/// Fraction (1/n) of the places that a host keeps for connections in use while a newcomer waits.
inline constexpr std::uint32_t kShareOfPlaces = 4;
/// A connection keeps its place for this long after it was accepted, and an idle one after its last bytes.
inline constexpr std::uint64_t kLeastStayNs = 5'000'000'000;
/// A newcomer for which one connection is evicted waits for this long before another one is.
inline constexpr std::uint64_t kDrainNs = 1'000'000'000;

struct IngressConfig {
  std::vector<segment::AllowedPrefix> allowed;  ///< empty: every address
  bool privileged_clients = false;              ///< refuses source ports that are not below 1024
  std::uint32_t clients = 256;                  ///< TCP connections
  rdma_server::Server server{};
  rdma_server::ServerSideConfig server_side{};
  UringFeatures uring = UringFeatures::all();  ///< used if the kernel has them
};

class Ingress final : public service::Poller {
 public:
  using Counter = segment::IngressCounter;

  /// Setup. The references and `clock` outlive it.
  Ingress(rpcrdma::Engine& engine, rdma_server::Dialer& dialer, Listener& listener,
          const IngressConfig& config, segment::IngressArea& area, Clock clock);
  ~Ingress() override;
  Ingress(const Ingress&) = delete;
  Ingress& operator=(const Ingress&) = delete;

  bool poll(std::uint64_t now_ns) noexcept override;

  // For its clients.
  rdma_server::ServerSide& server() noexcept { return server_; }
  void on_free(TcpClient& client) noexcept;
  const rdma_server::ServerSideConfig& config() const noexcept { return server_.config(); }
  tcp::Uring& uring() noexcept { return uring_; }
  std::uint64_t now_ns() const noexcept { return clock_(); }
  // At most once per client until the next poll().
  void schedule_flush(TcpClient& client) noexcept { to_flush_.push_back(&client); }
  void schedule_resume(TcpClient& client) noexcept { waiting_.push_back(client); }
  segment::IngressArea& area() noexcept { return area_; }
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
  segment::IngressArea& area_;
  const Clock clock_;
  tcp::Uring uring_;
  rdma_server::ServerSide server_;
  Hosts hosts_;
  const std::uint32_t share_;  ///< places that a host keeps for connections in use
  std::vector<Owned<TcpClient>> clients_;
  FixedStack<TcpClient*> free_clients_;
  std::vector<TcpClient*> to_flush_;
  rdma_server::ReleaseWaiters<TcpClient, &TcpClient::waiting_link> waiting_;
  PacedRound clients_round_{kTickNs};
  std::uint32_t next_looked_at_ = 0;
  bool accepting_ = false;
  bool accept_failed_ = false;  ///< retried at the next tick
  bool full_ = false;           ///< all places are in use
  bool evictable_ = false;      ///< the last round found a client that a newcomer may displace
  Newcomer newcomer_;
  TcpClient* idlest_ = nullptr;   ///< of this round: the idle client that is evicted first
  TcpClient* busiest_ = nullptr;  ///< of this round: the client in use that is drained first
  std::uint64_t evict_again_ns_ = 0;
  sockaddr_storage peer_{};  ///< address of the next client
  socklen_t peer_bytes_ = 0;
  std::uint64_t ticked_ns_ = 0;
};

}  // namespace sluice::tcp_clients
