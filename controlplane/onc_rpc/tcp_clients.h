// SPDX-License-Identifier: Apache-2.0
//
// TCP clients of a service. The resources that unauthenticated clients can hold are bounded: connections,
// bytes, calls, and time. Single-threaded; runs on the service's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "controlplane/onc_rpc/call_handler.h"
#include "controlplane/onc_rpc/statistics.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/polled_service.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::onc_rpc {

inline constexpr std::size_t kMaxClients = 128;
inline constexpr std::size_t kMaxClientsOfNetwork = 32;
/// Calls of a connection that may wait for an upstream. Further calls stay in the socket's buffer.
inline constexpr std::size_t kMaxCallsOfClient = 4;
/// Timeouts from a call's first byte to its last, from a reply's first byte to its last, and without either.
inline constexpr std::uint64_t kCallNs = 10'000'000'000;
inline constexpr std::uint64_t kReplyNs = 10'000'000'000;
inline constexpr std::uint64_t kIdleClientNs = 60'000'000'000;
inline constexpr int kAcceptsPerTurn = 16;
inline constexpr int kCallsPerTurn = 16;  ///< calls of one connection
/// Pause of the listener after the process ran out of file descriptors.
inline constexpr std::uint64_t kAcceptRestNs = 200'000'000;

class TcpClients {
 public:
  /// The caller keeps ownership of the listeners. They, `handler` and `statistics` outlive this object.
  TcpClients(std::vector<int> listeners, CallHandler& handler, ServerStatistics& statistics,
             std::size_t max_call_bytes);
  ~TcpClients();
  TcpClients(const TcpClients&) = delete;
  TcpClients& operator=(const TcpClients&) = delete;

  void prepare(PollSet& set);
  void poll(const PollSet& set, std::uint64_t now_ns);
  std::size_t clients() const { return clients_.size(); }

 private:
  struct Client {
    explicit Client(std::size_t max_call_bytes) : buffer(max_call_bytes + xdr::kUnit) {}

    std::uint64_t number = 0;
    int fd = -1;
    PeerAddress address;
    PeerAddress local;
    bool privileged = false;  ///< connected from a port below 1024
    std::size_t place = PollSet::kNowhere;
    std::size_t waiting = 0;  ///< calls without a reply
    bool more = false;        ///< the buffer may contain another call
    bool closing = false;     ///< the client has shut down its sending side
    bool ended = false;
    std::uint64_t idle_since_ns = 0;
    std::uint64_t call_since_ns = 0;   ///< zero if no part of a call was received
    std::uint64_t reply_since_ns = 0;  ///< zero if everything was sent
    std::vector<std::byte> unsent;
    std::size_t sent = 0;
    std::vector<std::byte> buffer;
    tcp::RecordStream stream{buffer, ~std::uint32_t{0}};  ///< records larger than the buffer are rejected

    bool takes_calls() const { return unsent.empty() && waiting < kMaxCallsOfClient; }
    bool finished() const { return closing && !more && waiting == 0 && unsent.empty(); }
    bool idle() const { return waiting == 0 && unsent.empty() && call_since_ns == 0 && !more; }
    std::uint64_t deadline_ns() const;
    /// Eviction rank; lower ranks are evicted first. Idle connections come first, and then those with the
    /// oldest call.
    std::pair<bool, std::uint64_t> rank() const {
      return {!idle(), call_since_ns != 0 ? call_since_ns : idle_since_ns};
    }
  };

  void accept(int listener, std::uint64_t now_ns);
  bool make_room(const PeerAddress& address);
  std::size_t clients_of(const PeerAddress& address) const;
  void serve(Client& client, short events, std::uint64_t now_ns);
  void receive(Client& client);
  void take_calls(Client& client, std::uint64_t now_ns);
  void take_call(Client& client, std::uint64_t now_ns);
  void reply(std::uint64_t number, std::span<const std::byte> message);
  static void send(Client& client);

  const std::vector<int> listeners_;
  std::vector<std::size_t> places_;  ///< poll indices of the listeners
  CallHandler& handler_;
  ServerStatistics& statistics_;
  const std::size_t max_call_bytes_;
  std::list<Client> clients_;
  std::uint64_t last_number_ = 0;
  std::uint64_t accept_after_ns_ = 0;
  std::uint64_t now_ns_ = 0;
};

}  // namespace sluice::onc_rpc
