// SPDX-License-Identifier: Apache-2.0
//
// The reverse gateway: clients use RPC over TCP, the server RPC-over-RDMA. Each client has a connection to
// the server of its own, because servers tie state, callbacks and XIDs to the connection. XIDs are kept, for
// the server's duplicate request cache and for RPCSEC_GSS, which signs them. Only the owning reactor may
// call; the constructor is setup.
//
// Calls are sent with Read chunks for eligible arguments (RFC 8267), with Write chunks for the data that they
// request, and, where the reply may be long, with a Reply chunk or, in version 2, as continued messages.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/base/setup_error.h"
#include "dataplane/ingress/dialer.h"
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
  sockaddr_storage address{};  ///< to listen at
  socklen_t address_bytes = 0;
  std::vector<segment::AllowedPrefix> allowed;  ///< empty: every address
  std::uint32_t clients = 16;
  std::uint32_t calls = 64;  ///< outstanding per client; a power of two
  std::uint32_t inline_bytes = 4096;
  std::uint32_t record_buffers = 32;
  std::uint32_t item_buffers = 256;
  std::uint64_t call_timeout_ns = 120'000'000'000;  ///< zero: none
};

struct Memory {
  rdma::BufferPool records;
  rdma::BufferPool items;
};

class Ingress final : public service::Poller {
 public:
  using Counter = segment::IngressCounter;

  /// Setup. The references and `clock` outlive it. Throws SetupError if it cannot listen.
  Ingress(rpcrdma::Engine& engine, Dialer& dialer, const IngressConfig& config, segment::IngressArea& area,
          Clock clock);
  ~Ingress() override;
  Ingress(const Ingress&) = delete;
  Ingress& operator=(const Ingress&) = delete;

  bool poll(std::uint64_t now_ns) noexcept override;
  /// The listening port, in host byte order.
  std::uint16_t port() const noexcept;

  // For its clients.
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
  /// Routes the server's calls on this connection to this client.
  void bind(const rpcrdma::Connection& connection, TcpClient& client) noexcept {
    by_connection_[connection.number()] = &client;
  }
  /// The connection no longer serves this client. No effect if it is bound to another one by now.
  void unbind(const rpcrdma::Connection& connection, const TcpClient& client) noexcept {
    TcpClient*& owner = by_connection_[connection.number()];
    if (owner == &client) owner = nullptr;
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

  void on_accepted(int result) noexcept;
  bool is_allowed() const noexcept;
  void resume_waiting() noexcept;
  void publish() noexcept;

  const IngressConfig config_;
  Dialer& dialer_;
  segment::IngressArea& area_;
  const Clock clock_;
  Callee callee_{*this};
  tcp::Uring uring_;
  Memory memory_;
  std::unique_ptr<std::byte[]> scratch_;
  std::vector<std::unique_ptr<TcpClient>> clients_;
  std::vector<TcpClient*> by_connection_;  ///< by number of the connection to the server; null: none
  std::vector<TcpClient*> to_flush_;
  std::vector<TcpClient*> waiting_;
  std::vector<TcpClient*> resuming_;  ///< in resume_waiting()
  int listener_ = -1;
  bool accepting_ = false;
  bool accept_failed_ = false;  ///< retried at the next tick
  sockaddr_storage peer_{};     ///< address of the next client
  socklen_t peer_bytes_ = 0;
  bool released_ = false;
  std::uint64_t ticked_ns_ = 0;
};

}  // namespace sluice::ingress
