// SPDX-License-Identifier: Apache-2.0
//
// One upstream server as one reactor uses it: which connection a call takes, the XIDs of calls outstanding,
// what becomes of replies and of the upstream's own calls. One reactor.
//
// NFS version 4 and RPCSEC_GSS have one upstream connection for each client connection, so that state,
// callbacks and contexts belong to who they belong to. Everything else shares a few.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/segment/upstreams.h"
#include "dataplane/service/forward/forwarded_call.h"
#include "dataplane/service/forward/upstream_connection.h"
#include "pmd/buffer_pool.h"

namespace sluice::forward {

/// Data of a reply that came with others, on its way to an RDMA Write.
inline constexpr std::uint32_t kItemBytes = tcp::kStreamBytes;
/// Calls of one upstream that are with their clients at once.
inline constexpr std::uint32_t kMaxCallBacks = 256;
/// Connections that a call may lose, alone on them, while others are answered.
inline constexpr std::uint8_t kMaxStrikes = 3;
/// Looks at connections and at how long calls take.
inline constexpr std::uint64_t kTickNs = 20'000'000;
/// A call that waits longer makes its upstream slow: the credits of its clients are halved, down to one.
inline constexpr std::uint64_t kSlowNs = 500'000'000;
/// While it is slow, and until the limit is gone again.
inline constexpr std::uint64_t kCreditIntervalNs = 200'000'000;

struct UpstreamConfig {
  std::string name;
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  std::uint32_t shared_connections = 4;
  std::uint32_t max_calls = 1024;  ///< outstanding at once; a power of two
  std::uint32_t max_clients = 64;  ///< connections of clients on the reactor
  std::uint64_t call_timeout_ns = 120'000'000'000;
  bool privileged_port = false;
  std::uint32_t credits = 64;  ///< most of a client
};

/// Registered memory for replies, which all upstreams of a reactor share.
struct ReplyMemory {
  rdma::BufferPool records;
  rdma::BufferPool items;
};

class Upstream {
 public:
  using Counter = segment::UpstreamCounter;

  /// Setup. All that is given outlives it.
  Upstream(const UpstreamConfig& config, tcp::Uring& uring, ReplyMemory& memory, segment::UpstreamArea& area,
           std::uint64_t (*clock)() noexcept);
  ~Upstream();
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  const UpstreamConfig& config() const noexcept { return config_; }

  // For the services.
  void submit(ForwardedCall& exchange) noexcept;
  /// The reply that waited for memory. False: it waits longer.
  bool deliver_held(ForwardedCall& exchange) noexcept;
  /// The call is about to be completed with its reply.
  void answered(ForwardedCall& exchange) noexcept;
  void release(ForwardedCall& exchange) noexcept;
  void client_gone(service::Client& client) noexcept;

  // For the reactor's loop.
  void flush() noexcept;
  void background(std::uint64_t now_ns) noexcept;
  void resume_stalled() noexcept;

  // For its connections.
  /// False: there is no memory for what the record is, which has to come again.
  bool on_record(UpstreamConnection& connection, std::span<std::byte> record) noexcept;
  void on_message_sent(ForwardedCall& exchange) noexcept;
  /// A reply, presumably, that is longer than any reply can be.
  void on_long_record(UpstreamConnection& connection, std::span<const std::byte> xid) noexcept;
  void on_lost(UpstreamConnection& connection) noexcept;
  void to_be_flushed(UpstreamConnection& connection) noexcept;
  void stall(UpstreamConnection& connection) noexcept;
  ReplyMemory& memory() noexcept { return memory_; }
  std::uint64_t now_ns() const noexcept { return clock_(); }
  void count(Counter counter, std::uint64_t amount = 1) noexcept {
    auto& value = area_.counters[static_cast<std::size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void on_sending(ForwardedCall& exchange) noexcept;
  void to_be_retried(UpstreamConnection& connection) noexcept;

 private:
  /// A call of the upstream that its client has.
  struct CallBack {
    Upstream* upstream = nullptr;
    UpstreamConnection* connection = nullptr;
    std::uint32_t epoch = 0;
    std::uint32_t xid = 0;
  };

  UpstreamConnection* connection_for(const ForwardedCall& exchange) noexcept;
  void know(service::Client& client) noexcept;
  void serve_queued() noexcept;
  bool give_xid(ForwardedCall& exchange) noexcept;
  void unlink(ForwardedCall& exchange) noexcept;
  ForwardedCall* find_kept(UpstreamConnection& connection, std::uint32_t xid) noexcept;
  ForwardedCall* find(UpstreamConnection& connection, std::uint32_t xid) noexcept;
  bool on_reply(UpstreamConnection& connection, std::span<std::byte> record) noexcept;
  void on_call(UpstreamConnection& connection, std::span<const std::byte> record) noexcept;
  static void on_call_back_done(void* context, std::span<const std::byte> reply) noexcept;
  void refuse_call(UpstreamConnection& connection, std::uint32_t xid, rpc::AcceptStat stat) noexcept;
  bool hold(ForwardedCall& exchange, std::span<const std::byte> record) noexcept;
  void wait_for_results(ForwardedCall& exchange) noexcept;
  void deliver_or_wait(ForwardedCall& exchange) noexcept;
  void give_up(ForwardedCall& exchange) noexcept;
  void give_up_calls_of(ForwardedCallList& calls, const service::Client& client) noexcept;
  void end(ForwardedCall& exchange) noexcept;
  void expire(std::uint64_t now_ns) noexcept;
  void expire(ForwardedCallList& calls, std::uint64_t now_ns) noexcept;
  void judge_speed(std::uint64_t now_ns) noexcept;
  void publish() noexcept;

  const UpstreamConfig config_;
  tcp::Uring& uring_;
  ReplyMemory& memory_;
  segment::UpstreamArea& area_;
  std::uint64_t (*const clock_)() noexcept;

  std::vector<std::unique_ptr<UpstreamConnection>> connections_;  ///< the shared ones first
  std::vector<UpstreamConnection*> own_;                          ///< by number of the client
  std::vector<UpstreamConnection*> free_;
  std::vector<UpstreamConnection*> retiring_;
  std::vector<UpstreamConnection*> retrying_;
  std::vector<UpstreamConnection*> dirty_;
  std::vector<UpstreamConnection*> stalled_;

  std::vector<ForwardedCall*> numbers_;  ///< by the low bits of the XID
  std::vector<std::uint32_t> free_numbers_;
  std::uint32_t generation_;
  std::uint32_t kept_xids_ = 0;  ///< calls outstanding with a XID of their client's
  ForwardedCallList queued_;     ///< for a number

  std::array<CallBack, kMaxCallBacks> call_backs_;
  std::vector<CallBack*> free_call_backs_;

  std::vector<service::Client*> clients_;  ///< by number; those that have called
  std::uint32_t credit_limit_ = ~std::uint32_t{0};
  std::uint64_t judged_ns_ = 0;
  std::uint64_t ticked_ns_ = 0;
};

}  // namespace sluice::forward
