// SPDX-License-Identifier: Apache-2.0
//
// The admin socket: JSON-RPC 2.0, one message per line, over a UNIX stream socket. One thread; polled.
//
// Access follows from the peer credentials that the kernel reports (SO_PEERCRED, SO_PEERGROUPS). Root, the
// user of the control plane and members of `change_group` may call every method, members of `read_group`
// those that change nothing. Any other process gets an error response and is disconnected.
#pragma once

#include <poll.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "controlplane/admin/pace.h"
#include "controlplane/admin/registry.h"
#include "controlplane/admin/shares.h"
#include "controlplane/admin/socket_lock.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/setup_error.h"

namespace sluice::admin {

/// Clients at a time. A further client replaces the one that has been idle longest, or does not read. If all are
/// busy, it replaces a client of the process with the most.
inline constexpr std::size_t kMaxClients = 32;
/// Clients with a request that is answered later, such as a reload from a disk that is slow. Further requests are
/// queued, and the places that are left remain for requests that are answered at once.
inline constexpr std::size_t kMaxWaitingClients = kMaxClients / 2;
/// Waiting clients of one user, and of one process.
inline constexpr std::size_t kMaxWaitingOfUser = kMaxWaitingClients / 2;
inline constexpr std::size_t kMaxWaitingOfProcess = kMaxWaitingOfUser / 2;
inline constexpr std::size_t kMaxRequestBytes = 64u << 10;
/// Responses that a client has not read yet. A client with more is disconnected.
inline constexpr std::size_t kMaxUnsentBytes = 16u << 20;
/// From a response until it is read. Who takes longer gives its place to a new client when all are taken.
inline constexpr std::uint64_t kMaxUnreadNs = 10'000'000'000;
/// Requests of one client that one poll() answers, so that none keeps the others waiting.
inline constexpr int kRequestsPerTurn = 4;
/// Requests of all clients that one poll() answers: the longest answers take a millisecond each.
inline constexpr int kRequestsPerPoll = 8;

class Server {
 public:
  /// Locks the path (socket_lock.h) and makes the socket under another name, and its directory if that is
  /// missing. Groups by name, empty for none. Throws SetupError. `registry` outlives the server; methods may be
  /// added to it at any time.
  Server(const Registry& registry, const std::string& path, const std::string& change_group,
         const std::string& read_group, const Owner& owner = {}, std::uint64_t max_unread_ns = kMaxUnreadNs);
  /// Removes the socket, if the path still leads to this one.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Limits the requests of one poll() to the work that `pace` allows; the others are answered by the next one. Call it before
  /// the first poll(). `pace` outlives the server.
  void limit_by(Pace& pace) { pace_ = &pace; }
  /// Clients that were disconnected because they did not read their responses. Each is logged.
  std::uint64_t cut_off() const { return cut_off_; }
  /// Requests that were queued because as many clients of their process, of their user or in all were waiting as may.
  std::uint64_t queued() const { return queued_; }
  /// Gives the socket its path, where there may be a predecessor's. Throws SetupError.
  void show();
  /// Waits at most `timeout_ms` for requests, or until one of `others` can be read.
  void wait(int timeout_ms, std::initializer_list<int> others = {});
  /// Answers those that wait() has found.
  void serve();
  /// Both.
  void poll(int timeout_ms) {
    wait(timeout_ms);
    serve();
  }
  /// When the last wait() ended, or should have; monotonic. Zero: there was none.
  std::uint64_t woke_ns() const { return woke_ns_; }

  /// Access of a process with this user and these groups. Public for tests.
  Access access_of(std::uint32_t uid, const std::vector<std::uint32_t>& gids) const;

 private:
  struct Client {
    int fd;
    Access access;
    Process process{};
    std::string received{};
    std::string unsent{};
    std::size_t sent = 0;               ///< bytes of `unsent` that the socket has taken
    std::uint64_t last_active = 0;      ///< the poll() that last received from it
    FileDescriptor passed{};            ///< for its next request (SCM_RIGHTS); one at a time
    std::uint64_t number = 0;           ///< no other has had it
    bool waits = false;                 ///< for a response that comes later; its next request waits, too
    std::uint64_t ticket = 0;           ///< order of its queued request; 0: none
    std::uint64_t unread_since_ns = 0;  ///< where there is something unsent
    /// Returns true if its next step comes from this server, and not from itself.
    bool held() const { return waits || ticket != 0; }
    bool has_request() const { return !held() && received.find('\n') != std::string::npos; }
    bool request_too_long() const {
      return received.size() > kMaxRequestBytes && received.find('\n') == std::string::npos;
    }
    bool busy() const { return held() || !unsent.empty() || has_request(); }
    std::size_t unread_bytes() const { return unsent.size() - sent; }
    void respond(const std::string& response);
  };
  void accept_client();
  bool make_room(const Process& process);
  bool make_room_from_share(const Process& process);
  bool keeps_its_place(const Client& client) const;
  Holding connections_of(const Process& process) const;
  Holding waiting_of(const Process& process) const;
  const Client* next_queued() const;
  bool has_its_path() const;
  bool serve(Client& client);
  bool receive(Client& client);
  static ssize_t receive_bytes(Client& client, std::span<char> buffer);
  bool may_answer() const { return answers_left_ > 0 && (pace_ == nullptr || !pace_->spent()); }
  void log_cut_off(const Client& client, const std::string& reason);
  void answer_lines(Client& client);
  std::string answer(Client& client, const std::string& request, const FileDescriptor& passed);
  void answer_later(std::uint64_t client, const std::string& response);
  bool is_connected(std::uint64_t client) const;
  static bool send(Client& client);

  const Registry& registry_;
  const std::string path_;
  std::string hidden_path_;  ///< before show()
  const std::uint64_t max_unread_ns_;
  Owned<SocketLock> lock_;
  std::uint64_t inode_ = 0;  ///< of the socket in the file system
  int listener_ = -1;
  std::int64_t change_gid_ = -1;  ///< -1: none
  std::int64_t read_gid_ = -1;
  std::vector<Owned<Client>> clients_;
  std::vector<pollfd> ready_;  ///< of wait(): the listener, then the clients
  Pace* pace_ = nullptr;
  int answers_left_ = 0;  ///< of this poll()
  std::uint64_t cut_off_ = 0;
  std::uint64_t queued_ = 0;
  std::uint64_t tickets_ = 0;
  std::uint64_t polls_ = 0;
  std::uint64_t accepted_ = 0;
  std::uint64_t woke_ns_ = 0;
};

}  // namespace sluice::admin
