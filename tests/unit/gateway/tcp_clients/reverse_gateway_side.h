// SPDX-License-Identifier: Apache-2.0
//
// The reverse gateway's half of a test: an engine with a ReverseGateway over the loopback driver, and TCP
// clients of the test, in one thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "dataplane/gateway/tcp_clients/reverse_gateway.h"
#include "tests/conformance/lab.h"
#include "tests/unit/gateway/rdma_server/dialing_side.h"

namespace sluice::tcp_clients_test {

using conformance::append;
using conformance::Bytes;
using conformance::word_at;
using conformance::words;
using Counter = tcp_clients::ReverseGateway::Counter;

struct SideOptions {
  std::uint32_t version = 1;
  std::uint32_t clients = 4;
  std::uint32_t connections = 4;
  std::uint32_t calls = 8;
  std::uint32_t record_buffers = 32;
  std::uint32_t item_buffers = 16;
  std::uint32_t max_io_bytes = tcp::kMaxDataBytes;
  std::uint64_t call_timeout_ns = 0;
  std::vector<segment::AllowedPrefix> allowed{};
  bool privileged_clients = false;
  service::Withheld withheld{};
  UringFeatures uring = UringFeatures::all();  ///< used if the kernel supports them
};

/// A client's socket. It never blocks; poll() sends data that cannot be sent immediately.
class TcpPeer {
 public:
  /// Connects from 127.0.0.`host`, which is a different host for the gateway for each value. With
  /// `privileged`, the local port is below 1024.
  explicit TcpPeer(std::uint16_t port, std::uint8_t host = 1, bool privileged = false);
  ~TcpPeer();
  TcpPeer(const TcpPeer&) = delete;
  TcpPeer& operator=(const TcpPeer&) = delete;

  void send(std::span<const std::byte> bytes) { append(out_, bytes); }
  void send_record(std::span<const std::byte> message);
  void poll();
  /// Returns the next whole record. The gateway sends each as one fragment.
  std::optional<Bytes> take_record();
  bool ended() const { return ended_; }
  std::size_t received() const { return in_.size(); }
  void shut();
  /// Ends sending, and continues to receive.
  void shut_sending();

  bool reads = true;  ///< false: receives no bytes

 private:
  int socket_ = -1;
  bool ended_ = false;
  Bytes in_;
  Bytes out_;
};

class ReverseGatewaySide final : public rdma_server_test::DialingSide {
 public:
  /// Creates a reverse gateway. `shared` is the listener of another reactor of the process.
  ReverseGatewaySide(std::shared_ptr<rdma::loopback::Fabric> fabric, const SideOptions& options, Clock clock,
                     std::shared_ptr<tcp_clients::Listener> shared = nullptr);

  ~ReverseGatewaySide() override { close_connections(); }

  TcpPeer& add_peer(std::uint8_t host = 1) {
    peers.push_back(std::make_unique<TcpPeer>(listener->port(), host));
    return *peers.back();
  }
  TcpPeer& add_privileged_peer() {
    peers.push_back(std::make_unique<TcpPeer>(listener->port(), 1, true));
    return *peers.back();
  }
  void poll(std::uint64_t now_ns);
  std::uint64_t count(Counter counter) const {
    return area->counters[static_cast<std::size_t>(counter)].load();
  }

  const SideOptions options;
  std::unique_ptr<segment::ReverseArea> area = std::make_unique<segment::ReverseArea>();
  std::shared_ptr<tcp_clients::Listener> listener;
  std::unique_ptr<tcp_clients::ReverseGateway> gateway;
  std::vector<std::unique_ptr<TcpPeer>> peers;
};

}  // namespace sluice::tcp_clients_test
