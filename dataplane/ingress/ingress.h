// SPDX-License-Identifier: Apache-2.0
//
// The reverse gateway: clients use RPC over TCP, the server RPC-over-RDMA. A client that has calls has a
// connection to the server of its own, because servers tie state, callbacks and XIDs to the connection. XIDs
// are kept, for the server's duplicate request cache and for RPCSEC_GSS, which signs them. Only the owning
// reactor may call; the constructor is setup.
//
// Calls are sent with Read chunks for eligible arguments (RFC 8267), with Write chunks for the data that they
// request, and, where the reply may be long, with a Reply chunk or, in version 2, as continued messages.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/base/fixed_stack.h"
#include "dataplane/ingress/dialer.h"
#include "dataplane/ingress/listener.h"
#include "dataplane/ingress/server_connections.h"
#include "dataplane/ingress/tcp_client.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/ingress.h"
#include "dataplane/tcp/uring.h"
#include "pmd/buffer_pool.h"

namespace sluice::ingress {

/// Period of checking clients for overdue calls, records and replies.
inline constexpr std::uint64_t kTickNs = 20'000'000;

struct IngressConfig {
  std::vector<segment::AllowedPrefix> allowed;  ///< empty: every address
  std::uint32_t clients = 256;                  ///< TCP connections
  std::uint32_t connections = 16;               ///< to the server
  std::uint32_t calls = 64;                     ///< outstanding per connection to the server; a power of two
  std::uint32_t inline_bytes = 4096;
  std::uint32_t record_buffers = 32;
  std::uint32_t item_buffers = 256;
  std::uint64_t call_timeout_ns =
      0;  ///< after which the client of a call without a reply is disconnected; zero: never
};

struct Memory {
  rdma::BufferPool records;
  rdma::BufferPool items;
};

class Ingress final : public service::Poller {
 public:
  using Counter = segment::IngressCounter;

  /// Setup. The references and `clock` outlive it.
  Ingress(rpcrdma::Engine& engine, Dialer& dialer, const Listener& listener, const IngressConfig& config,
          segment::IngressArea& area, Clock clock);
  Ingress(const Ingress&) = delete;
  Ingress& operator=(const Ingress&) = delete;

  bool poll(std::uint64_t now_ns) noexcept override;

  // For its clients and connections.
  ServerConnections& servers() noexcept { return servers_; }
  void on_free(TcpClient& client) noexcept { free_clients_.push(&client); }
  const IngressConfig& config() const noexcept { return config_; }
  Dialer& dialer() noexcept { return dialer_; }
  service::Service& callee() noexcept { return callee_; }
  tcp::Uring& uring() noexcept { return uring_; }
  std::span<std::byte> scratch() noexcept { return {scratch_.get(), tcp::kMaxRecordBytes}; }
  std::uint64_t now_ns() const noexcept { return clock_(); }
  /// A buffer of the smallest size that fits. Null address: none is free.
  PoolBuffer acquire_buffer(std::size_t bytes) noexcept;
  void release_buffer(PoolBuffer& buffer) noexcept;
  rdma::Lkey record_lkey() const noexcept { return memory_.records.lkey(); }
  rdma::Lkey lkey(const PoolBuffer& buffer) const noexcept {
    return (buffer.is_record ? memory_.records : memory_.items).lkey();
  }
  /// A resource that waiting clients may need was released: they are resumed in the next poll().
  void note_release() noexcept { released_ = true; }
  // At most once per client until the next poll().
  void schedule_flush(TcpClient& client) noexcept { to_flush_.push_back(&client); }
  void schedule_resume(TcpClient& client) noexcept { waiting_.push_back(&client); }
  /// Routes the server's calls on this connection to the client that `server` is lent to.
  void bind(const rpcrdma::Connection& connection, ServerConnection& server) noexcept {
    by_connection_[connection.number()] = &server;
  }
  /// The connection no longer is that of `server`. No effect if it is bound to another one by now.
  void unbind(const rpcrdma::Connection& connection, const ServerConnection& server) noexcept {
    ServerConnection*& owner = by_connection_[connection.number()];
    if (owner == &server) owner = nullptr;
  }
  segment::IngressArea& area() noexcept { return area_; }
  void count(Counter counter, std::uint64_t amount = 1) noexcept {
    auto& value = area_.counters[static_cast<std::size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }

 private:
  /// Receives the server's calls, of any program, and passes them to the client that the connection is bound
  /// to (RFC 8167).
  class Callee final : public service::Service {
   public:
    explicit Callee(Ingress& ingress) : ingress_(ingress) {}
    const service::Binding& binding() const noexcept override { return binding_; }
    service::Execution execute(service::Call& call) noexcept override;
    void client_gone(service::Client& client) noexcept override;

   private:
    Ingress& ingress_;
    const service::Binding binding_{.unusable = service::UnusableChunks::Ignore, .name = "callback"};
  };

  TcpClient* client_of(const service::Client& connection) const noexcept;
  void accept() noexcept;
  void on_accepted(int result) noexcept;
  bool is_allowed() const noexcept;
  void resume_waiting() noexcept;
  void publish() noexcept;

  const IngressConfig config_;
  Dialer& dialer_;
  const Listener& listener_;
  segment::IngressArea& area_;
  const Clock clock_;
  Callee callee_{*this};
  tcp::Uring uring_;
  Memory memory_;
  std::unique_ptr<std::byte[]> scratch_;
  std::vector<std::unique_ptr<TcpClient>> clients_;
  FixedStack<TcpClient*> free_clients_;
  ServerConnections servers_;
  std::vector<ServerConnection*> by_connection_;  ///< by number of the connection to the server; null: none
  std::vector<TcpClient*> to_flush_;
  std::vector<TcpClient*> waiting_;
  std::vector<TcpClient*> resuming_;  ///< in resume_waiting()
  bool accepting_ = false;
  bool accept_failed_ = false;  ///< retried at the next tick
  bool full_ = false;           ///< accepts nobody: all clients are in use
  sockaddr_storage peer_{};     ///< address of the next client
  socklen_t peer_bytes_ = 0;
  bool released_ = false;
  std::uint64_t ticked_ns_ = 0;
};

}  // namespace sluice::ingress
