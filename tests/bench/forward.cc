// SPDX-License-Identifier: Apache-2.0
//
// Cost of the gateway: a client over loopback RDMA, the reactor with its upstream connections, and an
// upstream that answers at once, compared with a client straight over TCP to the same upstream. Client and
// reactor share a processor; the upstream has the other.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cli/bench/client.h"
#include "dataplane/service/forward/upstreams.h"
#include "dataplane/tcp/sockets.h"
#include "dataplane/ulb/nfs3.h"
#include "pmd/loopback/loopback.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr int kUpstreamCpu = 1;
constexpr int kGatewayCpu = 0;
constexpr std::uint32_t kReadBytes = 1u << 20;
constexpr std::uint32_t kLastFragment = 1u << 31;
constexpr std::size_t kProcedureAt = 20;  // in a call message
constexpr std::size_t kReplyHeaderBytes = 24;
constexpr std::size_t kStatusAt = 20;  // of acceptance, in a reply
constexpr std::uint32_t kNull = 0;

/// Answers NULL, GETATTR and READ with constant results, polling its connections.
class NullUpstream {
 public:
  NullUpstream() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes) != 0 || ::listen(listener_, 8) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
      throw std::runtime_error("no loopback socket");
    port_ = ntohs(address.sin_port);
    xdr::Writer getattr(getattr_);
    rpc::encode_accepted(getattr, {}, {}, rpc::AcceptStat::Success);
    read_.resize(256 + kReadBytes);
    xdr::Writer read(read_);
    rpc::encode_accepted(read, {}, {}, rpc::AcceptStat::Success);
    read.words(0, 0, kReadBytes, 1, kReadBytes);  // status, no attributes, count, eof, length
    read_.resize(read.position() + kReadBytes);
    thread_ = std::thread([this] { run(); });
  }
  ~NullUpstream() {
    stop_ = true;
    thread_.join();
    ::close(listener_);
  }
  std::uint16_t port() const { return port_; }

 private:
  struct Peer {
    int socket = -1;
    std::vector<std::byte> in = std::vector<std::byte>(64u << 10);
    std::size_t filled = 0;
    std::vector<std::byte> out;
    std::size_t sent = 0;
  };

  void run() {
    pin(kUpstreamCpu);
    std::vector<Peer> peers;
    while (!stop_.load(std::memory_order_relaxed)) {
      const int socket = peers.size() < 8 ? ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK) : -1;
      if (socket >= 0) {
        const int on = 1;
        ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        peers.emplace_back().socket = socket;
      }
      for (Peer& peer : peers) serve(peer);
    }
    for (const Peer& peer : peers) ::close(peer.socket);
  }

  void serve(Peer& peer) {
    if (!send_out(peer)) return;
    const auto got = ::recv(peer.socket, peer.in.data() + peer.filled, peer.in.size() - peer.filled, 0);
    if (got <= 0) return;
    peer.filled += static_cast<std::size_t>(got);
    std::size_t at = 0;
    while (peer.filled - at >= 4) {
      const std::size_t bytes = xdr::load_u32(&peer.in[at]) & ~kLastFragment;
      if (peer.filled - at < 4 + bytes) break;
      answer(peer, &peer.in[at + 4]);
      at += 4 + bytes;
    }
    std::memmove(peer.in.data(), &peer.in[at], peer.filled - at);
    peer.filled -= at;
    send_out(peer);
  }
  /// True when everything has been sent.
  static bool send_out(Peer& peer) {
    if (peer.out.empty()) return true;
    const auto sent =
        ::send(peer.socket, peer.out.data() + peer.sent, peer.out.size() - peer.sent, MSG_NOSIGNAL);
    if (sent > 0) peer.sent += static_cast<std::size_t>(sent);
    if (peer.sent < peer.out.size()) return false;
    peer.out.clear();
    peer.sent = 0;
    return true;
  }

  void answer(Peer& peer, const std::byte* call) {
    const std::span<const std::byte> reply = reply_to(xdr::load_u32(call + kProcedureAt));
    const std::size_t at = peer.out.size();
    peer.out.resize(at + 4 + reply.size());
    xdr::store_u32(&peer.out[at], kLastFragment | static_cast<std::uint32_t>(reply.size()));
    std::memcpy(&peer.out[at + 4], reply.data(), reply.size());
    std::memcpy(&peer.out[at + 4], call, 4);
  }

  std::span<const std::byte> reply_to(std::uint32_t procedure) const {
    if (procedure == kNull) return std::span(getattr_).first(kReplyHeaderBytes);
    return procedure == ulb::kNfs3Read ? std::span<const std::byte>(read_) : getattr_;
  }

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::array<std::byte, kReplyHeaderBytes + 4 + 84> getattr_{};
  std::vector<std::byte> read_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::vector<std::byte> call_message(std::uint32_t procedure) {
  CallBuilder builder(ulb::kNfsProgram, ulb::kNfs3Version, procedure);
  const std::array<std::byte, 32> handle{};
  if (procedure != kNull) builder.arguments().opaque(handle);
  if (procedure == ulb::kNfs3Read) builder.arguments().words(0, 0, kReadBytes);
  return {builder.message().begin(), builder.message().end()};
}

struct Rate {
  std::uint64_t operations = 0;
  double seconds = 0;
  std::vector<std::uint32_t> latency_ns;

  double per_second() const { return static_cast<double>(operations) / seconds; }
  double p50_us() {
    const auto middle = latency_ns.begin() + static_cast<std::ptrdiff_t>(latency_ns.size() / 2);
    std::nth_element(latency_ns.begin(), middle, latency_ns.end());
    return *middle / 1e3;
  }
  void note(std::uint64_t begun_ns, std::uint64_t now) {
    ++operations;
    if (latency_ns.size() < latency_ns.capacity())
      latency_ns.push_back(static_cast<std::uint32_t>(now - begun_ns));
  }
};

// --- Through the gateway

class Gateway {
 public:
  Gateway(std::uint16_t upstream_port, std::uint32_t depth)
      : fabric_(rdma::loopback::Fabric::in_process({.links = 2})),
        server_device_(rdma::loopback::make_device(fabric_, {.name = "gateway"})),
        client_device_(rdma::loopback::make_device(fabric_, {.name = "client"})),
        server_(*server_device_, server_config()),
        client_(*client_device_, client_config()),
        upstreams_(*server_device_, upstream_config(upstream_port), &now_ns),
        requester_(client_.requester_context(), *client_device_, {.requests = 256, .credits_requested = 128}),
        data_(client_device_->allocate_memory(std::size_t{depth} * kReadBytes)) {
    for (const auto& service : upstreams_.services()) server_.add_service(*service);
    connect();
  }

  Rate run(std::uint32_t procedure, std::uint32_t depth, double seconds) {
    const auto message = call_message(procedure);
    rate_.latency_ns.reserve(1u << 20);
    std::vector<Call> calls(depth);
    for (std::uint32_t i = 0; i < depth; ++i) {
      Call& call = calls[i];
      call.gateway = this;
      call.piece = {data_.bytes.data() + std::size_t{i} * kReadBytes, kReadBytes, data_.lkey};
      call.item = {.pieces = {&call.piece, 1}};
      call.request = {.payload = message, .max_reply_bytes = 256, .completion = &done, .context = &call};
      if (procedure == ulb::kNfs3Read) call.request.writes = {&call.item, 1};
      submit(call);
    }
    const std::uint64_t begin = now_ns();
    std::uint64_t now = begin;
    for (std::uint64_t turn = 0; static_cast<double>(now - begin) < seconds * 1e9; ++turn) {
      poll(now);
      if (turn % 16 == 0) now = now_ns();
    }
    rate_.seconds = static_cast<double>(now - begin) / 1e9;
    stopping_ = true;
    while (requester_.outstanding() > 0) poll(now);
    return rate_;
  }

 private:
  struct Call {
    Gateway* gateway = nullptr;
    std::uint64_t begun_ns = 0;
    rdma::Sge piece;
    rpcrdma::WriteItem item;
    rpcrdma::Request request;
  };

  static rpcrdma::EngineConfig server_config() {
    rpcrdma::EngineConfig config;
    config.max_connections = 2;
    config.capacity.call_slots = 128;
    config.capacity.requests = rpcrdma::kCallBacksAtOnce;
    config.reply_buffer_bytes = tcp::kMaxRecordBytes;
    return config;
  }
  static rpcrdma::EngineConfig client_config() {
    rpcrdma::EngineConfig config;
    config.max_connections = 2;
    config.capacity.call_slots = 2;
    config.capacity.requests = 128;
    return config;
  }
  forward::UpstreamsConfig upstream_config(std::uint16_t port) {
    forward::UpstreamSetup setup;
    setup.config.name = "null";
    setup.config.address_bytes =
        tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 1), port, setup.config.address);
    setup.config.shared_connections = 1;
    setup.config.max_clients = 2;
    setup.config.credits = 128;
    setup.routes = {{ulb::kNfsProgram, ulb::kNfs3Version}};
    setup.area = area_.get();
    return {.upstreams = {setup}};
  }

  void connect() {
    rdma::ConnectionManager& server_cm = *server_device_->connection_manager();
    rdma::ConnectionManager& client_cm = *client_device_->connection_manager();
    server_cm.listen(kPort);
    rpcrdma::Connection& connection = *client_.free_connection();
    connection.open(client_device_->create_queue_pair(client_.queue_pair_limits()),
                    {.send_inline_bytes = 4096, .credit_grant = 2, .credits_requested = 128, .active = true},
                    {}, &requester_);
    client_cm.connect(connection.queue_pair(), kPort, {});
    for (bool up = false; !up;) {
      rdma::CmEvent events[4];
      const std::size_t asked = server_cm.poll_events(events);
      for (const rdma::CmEvent& event : std::span(events, asked)) {
        if (event.type != rdma::CmEventType::ConnectRequest) continue;
        rpcrdma::Connection& accepted = *server_.free_connection();
        accepted.open(server_device_->create_queue_pair(server_.queue_pair_limits()),
                      {.send_inline_bytes = 4096, .credit_grant = 128}, event.peer_address, nullptr);
        server_cm.accept(event.id, accepted.queue_pair(), {});
        accepted.established();
      }
      const std::size_t answered = client_cm.poll_events(events);
      for (const rdma::CmEvent& event : std::span(events, answered))
        up = up || event.type == rdma::CmEventType::Established;
    }
    connection.established();
  }

  void submit(Call& call) {
    call.begun_ns = now_ns();
    if (!requester_.submit(call.request)) throw std::runtime_error("no request slot");
  }
  static void done(void* context, const rpcrdma::Reply& reply) noexcept {
    Call& call = *static_cast<Call*>(context);
    if (reply.status() != rpcrdma::CallStatus::Ok || reply.message().size() < kReplyHeaderBytes ||
        xdr::load_u32(reply.message().data() + kStatusAt) != 0)
      std::abort();
    call.gateway->rate_.note(call.begun_ns, now_ns());
    if (!call.gateway->stopping_) call.gateway->submit(call);
  }
  void poll(std::uint64_t now) {
    client_.poll(now);
    server_.poll(now);
    upstreams_.poll(now);
  }

  static constexpr std::uint16_t kPort = 20049;
  std::unique_ptr<segment::UpstreamArea> area_ = std::make_unique<segment::UpstreamArea>();
  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  std::unique_ptr<rdma::loopback::Loopback> server_device_;
  std::unique_ptr<rdma::loopback::Loopback> client_device_;
  rpcrdma::Engine server_;
  rpcrdma::Engine client_;
  forward::Upstreams upstreams_;
  rpcrdma::Requester requester_;
  rdma::MemoryRegion data_;
  Rate rate_;
  bool stopping_ = false;
};

Rate through_gateway(std::uint32_t procedure, std::uint32_t depth, double seconds) {
  pin(kGatewayCpu);
  NullUpstream upstream;
  return Gateway(upstream.port(), depth).run(procedure, depth, seconds);
}

// --- Straight over TCP

/// `depth` calls outstanding on one connection, polled without blocking; calls that are ready together go out
/// in one send.
Rate straight(std::uint32_t procedure, std::uint32_t depth, double seconds) {
  pin(kGatewayCpu);
  NullUpstream upstream;
  const int socket = tcp::connecting_socket(AF_INET, false, 30'000);
  sockaddr_storage address;
  const socklen_t address_bytes =
      tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 1), upstream.port(), address);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), address_bytes) != 0)
    throw std::runtime_error("cannot connect");
  const auto message = call_message(procedure);
  std::vector<std::byte> call(4 + message.size());
  xdr::store_u32(call.data(), kLastFragment | static_cast<std::uint32_t>(message.size()));
  std::memcpy(&call[4], message.data(), message.size());

  Rate rate;
  rate.latency_ns.reserve(1u << 20);
  std::vector<std::byte> out;
  std::vector<std::byte> in(2u << 20);
  std::vector<std::uint64_t> begun(1u << 16);
  std::uint64_t submitted = 0;
  std::uint64_t now = now_ns();
  const std::uint64_t begin = now;
  const auto submit = [&] {
    begun[submitted++ % begun.size()] = now_ns();
    out.insert(out.end(), call.begin(), call.end());
  };
  for (std::uint32_t i = 0; i < depth; ++i) submit();
  std::size_t filled = 0;
  while (static_cast<double>(now - begin) < seconds * 1e9) {
    if (!out.empty()) {
      if (::send(socket, out.data(), out.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(out.size()))
        throw std::runtime_error("cannot send");
      out.clear();
    }
    const auto got = ::recv(socket, in.data() + filled, in.size() - filled, MSG_DONTWAIT);
    now = now_ns();
    if (got <= 0) continue;
    filled += static_cast<std::size_t>(got);
    std::size_t at = 0;
    while (filled - at >= 4) {
      const std::size_t bytes = xdr::load_u32(&in[at]) & ~kLastFragment;
      if (filled - at < 4 + bytes) break;
      at += 4 + bytes;
      rate.note(begun[rate.operations % begun.size()], now);
      submit();
    }
    std::memmove(in.data(), &in[at], filled - at);
    filled -= at;
  }
  rate.seconds = static_cast<double>(now - begin) / 1e9;
  ::close(socket);
  return rate;
}

constexpr std::uint32_t kDepth = 128;
constexpr std::uint32_t kNullDepth = 16;
constexpr std::uint32_t kReadDepth = 8;

using Run = Rate (*)(std::uint32_t procedure, std::uint32_t depth, double seconds);

template <Run kRun>
double getattr_p50_us(double seconds) {
  return kRun(ulb::kNfs3GetAttr, 1, seconds).p50_us();
}
template <Run kRun, std::uint32_t kCalls>
double getattr_per_second(double seconds) {
  return kRun(ulb::kNfs3GetAttr, kCalls, seconds).per_second();
}
template <Run kRun>
double null_per_second(double seconds) {
  return kRun(kNull, kNullDepth, seconds).per_second();
}
template <Run kRun>
double read_bytes_per_second(double seconds) {
  return kRun(ulb::kNfs3Read, kReadDepth, seconds).per_second() * kReadBytes;
}

constexpr Side kSides[] = {
    {"gateway_p50_us", getattr_p50_us<through_gateway>},
    {"straight_p50_us", getattr_p50_us<straight>},
    {"gateway_alone", getattr_per_second<through_gateway, 1>},
    {"straight_alone", getattr_per_second<straight, 1>},
    {"gateway_null", null_per_second<through_gateway>},
    {"straight_null", null_per_second<straight>},
    {"gateway", getattr_per_second<through_gateway, kDepth>},
    {"straight", getattr_per_second<straight, kDepth>},
    {"gateway_read", read_bytes_per_second<through_gateway>},
    {"straight_read", read_bytes_per_second<straight>},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
