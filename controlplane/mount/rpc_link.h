// SPDX-License-Identifier: Apache-2.0
//
// Calls to an RPC server over one stream connection, with several calls outstanding, none of which blocks.
// The connection is made when there is a call, and closed when there has been none for a while. Calls that are
// outstanding when it is lost are sent again once, if they may be repeated.
//
// One thread, its service's.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "controlplane/mount/poll_set.h"
#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::mount {

/// Longest reply that is taken: some thousand exports.
inline constexpr std::uint32_t kMaxReplyBytes = 256u << 10;
/// A connection without a call for this long is closed.
inline constexpr std::uint64_t kIdleLinkNs = 10'000'000'000;
/// A connection on which a call has waited for this long without an answer, and that is a time-out, is replaced.
inline constexpr std::uint64_t kSilentLinkNs = 4'000'000'000;

/// Between one attempt to connect and the next. Each may hold a privileged port for a minute.
inline constexpr std::uint64_t kReopenNs = 500'000'000;

struct Server {
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  bool privileged_port = false;       ///< connect from a port below 1024
  std::optional<PeerAddress> from{};  ///< connect from this address of the host; none: from any
};

Server server_at(const PeerAddress& address, std::uint16_t port, bool privileged_port);

struct Procedure {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
};

enum class Failure : std::uint8_t {
  None,
  NoPrivilegedPort,  ///< this process may not use ports below 1024, or all are taken
  Unresolved,        ///< its name
  Unreachable,
  Lost,      ///< the connection ended before the reply, twice
  TimedOut,  ///< no reply by the deadline
  Refused,   ///< a reply without results
};
/// A clause such as "does not answer".
const char* to_string(Failure failure);

class RpcLink {
 public:
  /// `results` is valid during the call. More calls may be made from there.
  using Done = Function<void(Failure failure, xdr::Reader results)>;
  /// `reply`: the whole message, with an XID of ours; empty if there is none.
  using PassedOn = Function<void(Failure failure, std::span<const std::byte> reply)>;

  RpcLink() = default;
  ~RpcLink() { close(); }
  RpcLink(const RpcLink&) = delete;
  RpcLink& operator=(const RpcLink&) = delete;

  /// Where the following calls go. Ends a connection to another server; its calls move to the new one.
  void set_server(const Server& server);
  /// `credential`: whether the call has one of AUTH_SYS. Never calls `done` before it returns.
  void call(const Procedure& procedure, std::span<const std::byte> arguments, bool credential,
            std::uint64_t now_ns, std::uint64_t deadline_ns, Done done);
  /// A call of somebody else as it is, but for its XID. Never sent twice. Never calls `done` before it returns.
  void pass_on(std::span<const std::byte> message, std::uint64_t now_ns, std::uint64_t deadline_ns,
               PassedOn done);
  std::size_t outstanding() const { return calls_.size(); }

  void prepare(PollSet& set);
  void turn(const PollSet& set, std::uint64_t now_ns);

 private:
  enum class State : std::uint8_t {
    Down,        ///< no socket
    Connecting,  ///< waits until it can be written
    Up,
  };
  struct Call {
    std::uint32_t xid = 0;
    std::vector<std::byte> record;  ///< with its mark
    std::uint64_t deadline_ns = 0;
    std::uint64_t sent_ns = 0;  ///< on this connection
    bool once = false;          ///< may not be sent on a second connection
    bool sent = false;
    bool lost = false;  ///< one connection
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
  std::uint32_t connections_ = 0;  ///< made so far
  std::uint32_t next_xid_ = 1;
  std::uint64_t idle_since_ns_ = 0;
  std::uint64_t next_open_ns_ = 0;
  std::vector<Call> calls_;
  std::vector<std::byte> unsent_;
  std::size_t sent_ = 0;  ///< bytes of unsent_
  std::array<std::byte, tcp::kStreamBytes> buffer_{};
  tcp::RecordStream stream_{buffer_, kMaxReplyBytes};
  std::vector<std::byte> long_reply_;
};

}  // namespace sluice::mount
