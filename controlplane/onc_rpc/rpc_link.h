// SPDX-License-Identifier: Apache-2.0
//
// Non-blocking client for one RPC server over a stream connection, with several calls outstanding. The
// connection is opened for the first call and closed after a period without calls. Calls that are outstanding
// when the connection is lost are retransmitted once, unless they must not be repeated.
//
// Single-threaded; runs on the service's thread.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/polled_service.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::onc_rpc {

/// Maximum size of a reply over TCP, enough for a list of some thousand paths.
inline constexpr std::uint32_t kMaxReplyBytes = 256u << 10;
/// Time without calls after which the connection is closed.
inline constexpr std::uint64_t kIdleLinkNs = 10'000'000'000;
/// Time without a reply after which a timed-out call also closes its connection.
inline constexpr std::uint64_t kSilentLinkNs = 4'000'000'000;

/// Minimum interval between connection attempts. Each attempt may occupy a privileged port for a minute.
inline constexpr std::uint64_t kReopenNs = 500'000'000;

struct Server {
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  bool privileged_port = false;       ///< connect from a port below 1024
  std::optional<PeerAddress> from{};  ///< local address to connect from; empty for any
};

Server server_at(const PeerAddress& address, std::uint16_t port, bool privileged_port);

struct Procedure {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
};

enum class Failure : std::uint8_t {
  None,
  NoPrivilegedPort,  ///< ports below 1024 are not permitted for this process, or all are in use
  Unresolved,        ///< host name cannot be resolved
  Unreachable,
  Lost,      ///< the connection was closed before the reply, twice
  TimedOut,  ///< no reply by the deadline
  Refused,   ///< reply without results
};
/// Returns a clause such as "does not answer".
const char* to_string(Failure failure);

class RpcLink {
 public:
  /// Receives the result of a call. `results` is valid during the callback, which may start further calls.
  using Done = Function<void(Failure failure, xdr::Reader results)>;
  /// Receives the entire reply with this link's XID, or an empty span on failure.
  using PassedOn = Function<void(Failure failure, std::span<const std::byte> reply)>;

  RpcLink() = default;
  ~RpcLink() { close(); }
  RpcLink(const RpcLink&) = delete;
  RpcLink& operator=(const RpcLink&) = delete;

  /// Sets the server for further calls. If the address differs, closes the connection and moves its calls to
  /// the new server.
  void set_server(const Server& server);
  /// Starts a call. `credential` adds an AUTH_SYS credential. Never invokes `done` before this function
  /// returns.
  void call(const Procedure& procedure, std::span<const std::byte> arguments, bool credential,
            std::uint64_t now_ns, std::uint64_t deadline_ns, Done done);
  /// Forwards a call of another client, with only its XID changed. The call is never sent twice. Never
  /// invokes `done` before this function returns.
  void pass_on(std::span<const std::byte> message, std::uint64_t now_ns, std::uint64_t deadline_ns,
               PassedOn done);
  std::size_t outstanding() const { return calls_.size(); }

  void prepare(PollSet& set);
  void poll(const PollSet& set, std::uint64_t now_ns);

 private:
  enum class State : std::uint8_t {
    Down,        ///< no socket
    Connecting,  ///< waits until the socket is writable
    Up,
  };
  struct Call {
    std::uint32_t xid = 0;
    std::vector<std::byte> record;  ///< includes the record mark
    std::uint64_t deadline_ns = 0;
    std::uint64_t sent_ns = 0;  ///< time of sending on this connection
    bool once = false;          ///< must not be sent on a second connection
    bool sent = false;
    bool lost = false;  ///< one connection with this call was lost
    PassedOn done;
  };

  void add(Call call);
  void open(std::uint64_t now_ns);
  void connected(std::uint64_t now_ns);
  void send();
  void receive();
  void take_reply(std::span<const std::byte> reply);
  void lost();
  void expire(std::uint64_t now_ns);
  template <typename Which>
  std::vector<Call> take(const Which& which);
  static void end(const std::vector<Call>& calls, Failure failure, std::span<const std::byte> reply = {});
  void fail_all(Failure failure);
  void close();

  Server server_;
  State state_ = State::Down;
  int fd_ = -1;
  std::size_t place_ = PollSet::kNowhere;
  std::uint32_t connections_ = 0;  ///< connections established so far
  std::uint32_t next_xid_ = 1;
  std::uint64_t idle_since_ns_ = 0;
  std::uint64_t next_open_ns_ = 0;
  std::vector<Call> calls_;
  std::vector<std::byte> unsent_;
  std::size_t sent_ = 0;  ///< sent bytes of unsent_
  std::array<std::byte, tcp::kStreamBytes> buffer_{};
  tcp::RecordStream stream_{buffer_, kMaxReplyBytes};
  std::vector<std::byte> long_reply_;
};

}  // namespace sluice::onc_rpc
