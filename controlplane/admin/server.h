// SPDX-License-Identifier: Apache-2.0
//
// The admin socket, which carries JSON-RPC 2.0 over a UNIX stream socket, one message per line.
// Single-threaded; polled.
//
// Access follows from the peer credentials that the kernel reports (SO_PEERCRED, SO_PEERGROUPS). Root, the
// user of the control plane and members of `change_group` may call every method. Members of `read_group`
// may call methods that change nothing. Any other process gets an error response and is disconnected.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "controlplane/admin/paced_work.h"
#include "controlplane/admin/registry.h"
#include "controlplane/admin/socket_lock.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/polled_service.h"
#include "dataplane/base/setup_error.h"

namespace sluice::admin {

/// Process at the other end of a connection, as the kernel reports it (SO_PEERCRED).
struct Process {
  std::uint32_t user = 0;  ///< user ID
  std::int64_t id = 0;     ///< process ID
  bool operator==(const Process&) const = default;
};

/// Places that one user holds, and places that one of its processes holds. The smallest holding gets the next
/// free place, and the largest holding loses a place.
struct Holding {
  std::size_t of_user = 0;
  std::size_t of_process = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): a defaulted comparison has no pointer (clang-tidy 14)
  auto operator<=>(const Holding&) const = default;

  void add(const Process& process, const Process& holder) {
    of_user += holder.user == process.user;
    of_process += holder == process;
  }
};

/// Returns true if a place may pass from `holder` to `process`. `held` and `own` are their holdings. After
/// the place has passed, `process` must not hold more than `holder`. Compares users, or processes of one
/// user.
inline bool passes(const Process& holder, const Holding& held, const Process& process, const Holding& own) {
  if (holder.user != process.user) return held.of_user > own.of_user + 1;
  return held.of_process > own.of_process + 1;
}

/// Maximum number of connected clients. A further client replaces the client that has been idle longest, or
/// one that does not read its response. If all clients are busy, it replaces a client of the process with the
/// most connections.
inline constexpr std::size_t kMaxClients = 32;
/// Maximum number of clients with a request that is answered later, such as a reload from a slow disk.
/// Further such requests are queued. The remaining places are reserved for requests that are answered
/// immediately.
inline constexpr std::size_t kMaxWaitingClients = kMaxClients / 2;
/// Maximum number of waiting clients of one user, and of one process.
inline constexpr std::size_t kMaxWaitingOfUser = kMaxWaitingClients / 2;
inline constexpr std::size_t kMaxWaitingOfProcess = kMaxWaitingOfUser / 2;
inline constexpr std::size_t kMaxRequestBytes = 64u << 10;
/// Maximum size of the responses that a client has not read yet. A client with more is disconnected.
inline constexpr std::size_t kMaxUnsentBytes = 16u << 20;
/// Time limit for reading a response. A client that exceeds it is disconnected when a new client needs a
/// place.
inline constexpr std::uint64_t kMaxUnreadNs = 10'000'000'000;
/// Maximum number of requests of one client that one poll() answers, which prevents starvation of the others.
inline constexpr int kRequestsPerTurn = 4;
/// Maximum number of requests of all clients that one poll() answers. The longest answers take 1 ms each.
inline constexpr int kRequestsPerPoll = 8;

class Server final : public PolledService {
 public:
  /// Locks the path (socket_lock.h) and creates the socket under a temporary name until show(). Creates the
  /// directory if it is missing. Groups are given by name, or empty for none. Throws SetupError. `registry`
  /// outlives the server; methods may be added to it at any time.
  Server(const Registry& registry, const std::string& path, const std::string& change_group,
         const std::string& read_group, const Owner& owner = {}, std::uint64_t max_unread_ns = kMaxUnreadNs);
  /// Removes the socket if the path still refers to it.
  ~Server() override;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Limits the requests of one poll() to the work that `pace` allows. The next poll() answers the remaining
  /// requests. Call it before the first poll(). `pace` outlives the server.
  void limit_by(Pace& pace) { pace_ = &pace; }
  /// Returns the number of clients that the server has disconnected, because they did not read their
  /// responses or because another process needed the place. Each of them is logged.
  std::uint64_t cut_off() const { return cut_off_; }
  /// Returns the number of requests that were queued because the limit of waiting clients was reached for
  /// their process, for their user or in total.
  std::uint64_t queued() const { return queued_; }
  /// Renames the socket to its path, and replaces the socket of a predecessor there. Throws SetupError.
  void show();
  /// Registers the listener and the clients. The wait does not block while a complete request is unanswered.
  void prepare(PollSet& set) override;
  /// Answers requests of clients that `set` reports, and requests that the last poll() left unanswered.
  void poll(const PollSet& set, std::uint64_t now_ns) override;

  /// Returns the access of a process with this user and these groups. Public for tests.
  Access access_of(std::uint32_t uid, const std::vector<std::uint32_t>& gids) const;

 private:
  struct Client {
    int fd;
    Access access;
    std::size_t place = PollSet::kNowhere;  ///< index in the last set
    Process process{};
    std::string received{};
    std::string unsent{};
    std::size_t sent = 0;               ///< bytes of `unsent` that the socket has accepted
    std::uint64_t last_active = 0;      ///< number of the last poll() that received data from the client
    FileDescriptor passed{};            ///< descriptor for the next request (SCM_RIGHTS); at most one
    std::uint64_t number = 0;           ///< unique number of the client, never reused
    bool waits = false;                 ///< true while a request is to be answered later; delays the next one
    std::uint64_t ticket = 0;           ///< position of its queued request; 0 if none is queued
    std::uint64_t unread_since_ns = 0;  ///< time of the last response; valid while `unsent` is not empty
    /// Returns true if the client waits for this server: its request is queued or will be answered later.
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
  std::string hidden_path_;  ///< temporary path until show(), then empty
  const std::uint64_t max_unread_ns_;
  Owned<SocketLock> lock_;
  std::uint64_t inode_ = 0;  ///< inode number of the socket
  int listener_ = -1;
  std::int64_t change_gid_ = -1;  ///< group ID, or -1 for none
  std::int64_t read_gid_ = -1;
  std::vector<Owned<Client>> clients_;
  std::size_t place_ = PollSet::kNowhere;  ///< index of the listener in the last set
  Pace* pace_ = nullptr;
  int answers_left_ = 0;  ///< requests that this poll() may still answer
  std::uint64_t cut_off_ = 0;
  std::uint64_t queued_ = 0;
  std::uint64_t tickets_ = 0;
  std::uint64_t polls_ = 0;
  std::uint64_t accepted_ = 0;
};

}  // namespace sluice::admin
