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
#include "dataplane/gateway/tcp_clients/listener.h"
#include "dataplane/gateway/tcp_clients/tcp_client.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/ingress.h"
#include "dataplane/tcp/uring.h"

namespace sluice::tcp_clients {

/// Period of checking clients for overdue calls, records and replies.
inline constexpr std::uint64_t kTickNs = 20'000'000;

struct IngressConfig {
  std::vector<segment::AllowedPrefix> allowed;  ///< empty: every address
  std::uint32_t clients = 256;                  ///< TCP connections
  rdma_server::Server server{};
  rdma_server::ServerSideConfig server_side{};
  UringFeatures uring = UringFeatures::all();  ///< used if the kernel has them
};

class Ingress final : public service::Poller {
 public:
  using Counter = segment::IngressCounter;

  /// Setup. The references and `clock` outlive it.
  Ingress(rpcrdma::Engine& engine, rdma_server::Dialer& dialer, const Listener& listener,
          const IngressConfig& config, segment::IngressArea& area, Clock clock);
  Ingress(const Ingress&) = delete;
  Ingress& operator=(const Ingress&) = delete;

  bool poll(std::uint64_t now_ns) noexcept override;

  // For its clients.
  rdma_server::ServerSide& server() noexcept { return server_; }
  void on_free(TcpClient& client) noexcept { free_clients_.push(&client); }
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
  void accept() noexcept;
  void on_accepted(int result) noexcept;
  bool is_allowed() const noexcept;
  void resume_waiting() noexcept;
  void look_at_clients(std::uint64_t now_ns) noexcept;
  void publish() noexcept;

  const std::vector<segment::AllowedPrefix> allowed_;
  const Listener& listener_;
  segment::IngressArea& area_;
  const Clock clock_;
  tcp::Uring uring_;
  rdma_server::ServerSide server_;
  std::vector<Owned<TcpClient>> clients_;
  FixedStack<TcpClient*> free_clients_;
  std::vector<TcpClient*> to_flush_;
  rdma_server::ReleaseWaiters<TcpClient, &TcpClient::waiting_link> waiting_;
  PacedRound clients_round_{kTickNs};
  std::uint32_t next_looked_at_ = 0;
  bool accepting_ = false;
  bool accept_failed_ = false;  ///< retried at the next tick
  bool full_ = false;           ///< accepts nobody: all clients are in use
  sockaddr_storage peer_{};     ///< address of the next client
  socklen_t peer_bytes_ = 0;
  std::uint64_t ticked_ns_ = 0;
};

}  // namespace sluice::tcp_clients
