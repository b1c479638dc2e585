// SPDX-License-Identifier: Apache-2.0
//
// Clients of a service over TCP. What a stranger can hold is bounded: connections, bytes, calls, and time.
// One thread, the service's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "controlplane/mount/call_handler.h"
#include "controlplane/mount/poll_set.h"
#include "controlplane/mount/statistics.h"
#include "dataplane/base/net_address.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::mount {

inline constexpr std::size_t kMaxClients = 128;
inline constexpr std::size_t kMaxClientsOfNetwork = 32;
/// Longest call of MOUNT: its header with the longest credential and verifier, and a path, come to less.
inline constexpr std::size_t kMaxCallBytes = 2048;
/// Calls of a connection that wait for an upstream. Further ones stay in its socket.
inline constexpr std::size_t kMaxCallsOfClient = 4;
/// From a call's first byte to its last; from a reply's first byte to its last; and without either.
inline constexpr std::uint64_t kCallNs = 10'000'000'000;
inline constexpr std::uint64_t kReplyNs = 10'000'000'000;
inline constexpr std::uint64_t kIdleClientNs = 60'000'000'000;
inline constexpr int kAcceptsPerTurn = 16;
inline constexpr int kCallsPerTurn = 16;  ///< of one connection
/// How long the listener rests when the process has no descriptor left.
inline constexpr std::uint64_t kAcceptRestNs = 200'000'000;

class TcpClients {
 public:
  /// The listeners, which stay the caller's, and both others outlive it.
  TcpClients(std::vector<int> listeners, CallHandler& handler, MountStatistics& statistics,
             std::size_t max_call_bytes = kMaxCallBytes);
  ~TcpClients();
  TcpClients(const TcpClients&) = delete;
  TcpClients& operator=(const TcpClients&) = delete;

  void prepare(PollSet& set);
  void turn(const PollSet& set, std::uint64_t now_ns);
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
    bool more = false;        ///< there may be another call in the buffer
    bool closing = false;     ///< it has sent its last call
    bool ended = false;
    std::uint64_t idle_since_ns = 0;
    std::uint64_t call_since_ns = 0;   ///< zero: there is no part of a call
    std::uint64_t reply_since_ns = 0;  ///< zero: all is sent
    std::vector<std::byte> unsent;
    std::size_t sent = 0;
    std::vector<std::byte> buffer;
    tcp::RecordStream stream{buffer, ~std::uint32_t{0}};  ///< what exceeds the buffer asks for memory

    bool takes_calls() const { return unsent.empty() && waiting < kMaxCallsOfClient; }
    bool finished() const { return closing && !more && waiting == 0 && unsent.empty(); }
    bool idle() const { return waiting == 0 && unsent.empty() && call_since_ns == 0 && !more; }
    std::uint64_t deadline_ns() const;
    /// Lower ones give way first: idle ones, and then those with the oldest call.
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
  std::vector<std::size_t> places_;  ///< of the listeners
  CallHandler& handler_;
  MountStatistics& statistics_;
  const std::size_t max_call_bytes_;
  std::list<Client> clients_;
  std::uint64_t last_number_ = 0;
  std::uint64_t accept_after_ns_ = 0;
  std::uint64_t now_ns_ = 0;
};

}  // namespace sluice::mount
