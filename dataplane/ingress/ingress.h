// SPDX-License-Identifier: Apache-2.0
//
// The reverse gateway: clients that speak RPC over TCP, a server that speaks RPC-over-RDMA. Each client has a
// connection to the server of its own, so that state, callbacks and XIDs belong to who they belong to; its
// XIDs are kept, for the server's duplicate request cache and for RPCSEC_GSS, which signs them. One reactor.
//
// Calls go out with Read chunks for what their bindings make eligible (RFC 8267), with Write chunks for the
// data that they ask for, and with a Reply chunk, or continued in version 2, where the reply may be long.
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

/// Looks at clients whose calls, records or answers may be overdue.
inline constexpr std::uint64_t kTickNs = 20'000'000;

struct IngressConfig {
  sockaddr_storage address{};  ///< to listen at
  socklen_t address_bytes = 0;
  std::vector<segment::AllowedPrefix> allowed;  ///< none: every address
  std::uint32_t clients = 16;
  std::uint32_t calls = 64;  ///< of one client at once; a power of two
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

  /// Setup. All that is given outlives it. Throws SetupError where it cannot listen.
  Ingress(rpcrdma::Engine& engine, Dialer& dialer, const IngressConfig& config, segment::IngressArea& area,
          rpcrdma::Clock clock);
  ~Ingress() override;
  Ingress(const Ingress&) = delete;
  Ingress& operator=(const Ingress&) = delete;

  bool poll(std::uint64_t now_ns) noexcept override;
  /// Where it listens, in host order.
  std::uint16_t port() const noexcept;

  // For its clients.
  const IngressConfig& config() const noexcept { return config_; }
  Dialer& dialer() noexcept { return dialer_; }
  service::Service& callee() noexcept { return callee_; }
  tcp::Uring& uring() noexcept { return uring_; }
  std::span<std::byte> scratch() noexcept { return {scratch_.get(), tcp::kMaxRecordBytes}; }
  std::uint64_t now_ns() const noexcept { return clock_(); }
  /// The smallest that has room. Nothing in it when there is none.
  Loan borrow(std::size_t bytes) noexcept;
  void give_back(Loan& loan) noexcept;
  rdma::Lkey record_lkey() const noexcept { return memory_.records.lkey(); }
  rdma::Lkey lkey(const Loan& loan) const noexcept {
    return (loan.is_record ? memory_.records : memory_.items).lkey();
  }
  /// What a client waits for may be there.
  void note_release() noexcept { released_ = true; }
  // Once for each client until the next poll().
  void schedule_flush(TcpClient& client) noexcept { to_flush_.push_back(&client); }
  void schedule_resume(TcpClient& client) noexcept { waiting_.push_back(&client); }
  /// The server's calls on this connection are for this client.
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
  /// Takes the server's calls, of whatever program, and gives them to the client whose connection they came
  /// on (RFC 8167).
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
  const rpcrdma::Clock clock_;
  Callee callee_{*this};
  tcp::Uring uring_;
  Memory memory_;
  std::unique_ptr<std::byte[]> scratch_;
  std::vector<std::unique_ptr<TcpClient>> clients_;
  std::vector<TcpClient*> by_connection_;  ///< by number of the connection to the server
  std::vector<TcpClient*> to_flush_;
  std::vector<TcpClient*> waiting_;
  std::vector<TcpClient*> resuming_;  ///< in resume_waiting()
  int listener_ = -1;
  bool accepting_ = false;
  bool accept_failed_ = false;  ///< not tried again before the next tick
  sockaddr_storage peer_{};     ///< of the next client
  socklen_t peer_bytes_ = 0;
  bool released_ = false;
  std::uint64_t ticked_ns_ = 0;
};

}  // namespace sluice::ingress
