// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/server.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "controlplane/admin/json_rpc.h"
#include "controlplane/admin/socket_lock.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {
namespace {

std::int64_t gid_of(const std::string& group, const char* key) {
  if (group.empty()) return -1;
  const struct group* entry = ::getgrnam(group.c_str());
  if (entry == nullptr)
    throw SetupError("There is no group '" + group + "', which " + key +
                     " in [admin] names. Create it (groupadd --system " + group + "), or name another.");
  return entry->gr_gid;
}

/// Suffix of the socket's path until show().
constexpr std::string_view kHidden = ".new";

}  // namespace

Server::Server(const Registry& registry, const std::string& path, const std::string& change_group,
               const std::string& read_group, const Owner& owner, std::uint64_t max_unread_ns)
    : registry_(registry),
      path_(path),
      hidden_path_(path + std::string(kHidden)),
      max_unread_ns_(max_unread_ns),
      change_gid_(gid_of(change_group, "change_group")),
      read_gid_(gid_of(read_group, "read_group")) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (hidden_path_.size() >= sizeof address.sun_path)
    throw SetupError("The admin socket's path " + path + " is too long. Use one of at most " +
                     std::to_string(sizeof address.sun_path - 1 - kHidden.size()) + " bytes.");
  std::memcpy(address.sun_path, hidden_path_.c_str(), hidden_path_.size() + 1);
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    ::mkdir(path.substr(0, at).c_str(), 0777);  // a failure shows when the socket is made
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode))
    throw SetupError("The file at the admin socket's path " + path +
                     " is not a socket. Remove it, or set another socket in [admin].");
  lock_ = make_owned<SocketLock>(path, owner);
  ::unlink(hidden_path_.c_str());
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  // Any process may connect; accept_client() checks its credentials.
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(hidden_path_.c_str(), 0666) != 0 || ::listen(listener_, 16) != 0 ||
      ::lstat(hidden_path_.c_str(), &status) != 0) {
    const std::string problem = std::strerror(errno);
    ::close(listener_);
    ::unlink(hidden_path_.c_str());
    throw SetupError("Cannot listen on the admin socket " + path + " (" + problem +
                     "). Its directory has to exist and be writable.");
  }
  inode_ = status.st_ino;
}

void Server::show() {
  if (::rename(hidden_path_.c_str(), path_.c_str()) != 0)
    throw SetupError("Cannot rename the admin socket to " + path_ + " (" + std::strerror(errno) +
                     "). Its directory has to exist and be writable.");
  hidden_path_.clear();
}

/// Returns true if the path refers to this server's socket. The comparison of inode numbers is safe, because
/// the number is not reused while the listener is open.
bool Server::has_its_path() const {
  struct stat status {};
  return ::lstat(path_.c_str(), &status) == 0 && status.st_ino == inode_;
}

Server::~Server() {
  for (const auto& client : clients_) ::close(client->fd);
  if (!hidden_path_.empty())
    ::unlink(hidden_path_.c_str());
  else if (has_its_path())
    ::unlink(path_.c_str());
  ::close(listener_);
}

Access Server::access_of(std::uint32_t uid, const std::vector<std::uint32_t>& gids) const {
  if (uid == 0 || uid == ::geteuid()) return Access::Change;
  const auto member = [&](std::int64_t gid) {
    return gid >= 0 && std::find(gids.begin(), gids.end(), gid) != gids.end();
  };
  if (member(change_gid_)) return Access::Change;
  return member(read_gid_) ? Access::Read : Access::None;
}

void Server::prepare(PollSet& set) {
  place_ = set.add(listener_, POLLIN);
  if (next_queued() != nullptr) set.wake_at(0);
  for (const auto& client : clients_) {
    // The server receives nothing from a client with an unread response.
    if (client->has_request() && client->unsent.empty()) set.wake_at(0);
    const int awaited = client->held() ? 0 : client->unsent.empty() ? POLLIN : POLLOUT;
    client->place = set.add(client->fd, static_cast<short>(awaited));
  }
}

void Server::poll(const PollSet& set, std::uint64_t /*now_ns*/) {
  ++polls_;
  if (pace_ != nullptr) pace_->begin_iteration();
  answers_left_ = kRequestsPerPoll;
  // Each poll starts at another client, so that the first clients do not use up the work of every poll.
  const std::size_t count = clients_.size();
  const Client* const next = next_queued();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (polls_ + i) % count;
    Client& client = *clients_[at];
    const bool reported = set.events(client.place) != 0;
    // Waiting clients are polled for no events, so a report means that the client has disconnected.
    const bool ended = client.held() && reported;
    const bool due = client.held() ? &client == next : reported || client.has_request();
    if (!ended && (!due || serve(client))) continue;
    ::close(std::exchange(client.fd, -1));
  }
  std::erase_if(clients_, [](const auto& client) { return client->fd < 0; });
  if (set.events(place_) != 0) accept_client();
}

void Server::accept_client() {
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  ucred peer{};
  socklen_t bytes = sizeof peer;
  std::vector<std::uint32_t> gids(256);
  socklen_t gid_bytes = static_cast<socklen_t>(gids.size() * sizeof gids[0]);
  const bool known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
  const bool grouped = ::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, gids.data(), &gid_bytes) == 0;
  gids.resize(grouped ? gid_bytes / sizeof gids[0] : 0);
  gids.push_back(peer.gid);
  const Access access = known ? access_of(peer.uid, gids) : Access::None;
  std::string refusal;
  if (access == Access::None)
    refusal =
        "You may not use this socket. Become a member of the group that read_group or change_group in "
        "[admin] names, or use root.";
  else if (!make_room({peer.uid, peer.pid}))
    refusal =
        "There are " + std::to_string(kMaxClients) + " clients with outstanding requests. Try again later.";
  if (!refusal.empty()) {
    const std::string line = error_line(nullptr, kForbidden, refusal) + '\n';
    ::send(fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::close(fd);
    return;
  }
  clients_.push_back(make_owned<Client>(Client{.fd = fd,
                                               .access = access,
                                               .process = {peer.uid, peer.pid},
                                               .last_active = polls_,
                                               .number = ++accepted_}));
}

bool Server::keeps_its_place(const Client& client) const {
  if (client.unsent.empty()) return client.busy();
  return segment::monotonic_ns() - client.unread_since_ns < max_unread_ns_;
}

/// Frees a place for a client of `process` if all places are taken. Disconnects the client that has been
/// silent longest among the clients without protection by keeps_its_place(). If all are protected,
/// disconnects a client of the process with the most connections. Returns false if no place can be freed.
bool Server::make_room(const Process& process) {
  if (clients_.size() < kMaxClients) return true;
  const auto idlest =
      std::min_element(clients_.begin(), clients_.end(), [this](const auto& a, const auto& b) {
        return std::pair(keeps_its_place(*a), a->last_active) <
               std::pair(keeps_its_place(*b), b->last_active);
      });
  if (keeps_its_place(**idlest)) return make_room_from_share(process);
  if (!(*idlest)->unsent.empty())
    log_cut_off(**idlest, "It did not read its response for " +
                              std::to_string(max_unread_ns_ / 1'000'000'000) +
                              " s, and a new client needed its place");
  ::close((*idlest)->fd);
  clients_.erase(idlest);
  return true;
}

Holding Server::connections_of(const Process& process) const {
  Holding held;
  for (const auto& client : clients_) held.add(process, client->process);
  return held;
}

Holding Server::waiting_of(const Process& process) const {
  Holding held;
  for (const auto& client : clients_)
    if (client->waits) held.add(process, client->process);
  return held;
}

/// Disconnects a client of the process with the most connections, unless `process` already has its share.
/// Prefers clients that do not wait for an answer, and among them the newest. Returns false if `process` has
/// its share.
bool Server::make_room_from_share(const Process& process) {
  const auto richest =
      std::max_element(clients_.begin(), clients_.end(), [this](const auto& a, const auto& b) {
        return std::tuple(connections_of(a->process), !a->waits, a->number) <
               std::tuple(connections_of(b->process), !b->waits, b->number);
      });
  const Holding held = connections_of((*richest)->process);
  if (!passes((*richest)->process, held, process, connections_of(process))) return false;
  log_cut_off(**richest, "Its process had " + std::to_string(held.of_process) + ", and its user " +
                             std::to_string(held.of_user) + " of the " + std::to_string(kMaxClients) +
                             " connections, and another process needed one");
  ::close((*richest)->fd);
  clients_.erase(richest);
  return true;
}

/// Returns the client whose queued request is executed next, or null. Skips requests of users and processes
/// that have their full share of waiting clients. Prefers the user with the fewest waiting clients, then the
/// process with the fewest, then the oldest request.
const Server::Client* Server::next_queued() const {
  const auto waiting =
      std::count_if(clients_.begin(), clients_.end(), [](const auto& one) { return one->waits; });
  if (static_cast<std::size_t>(waiting) >= kMaxWaitingClients) return nullptr;
  const Client* next = nullptr;
  std::pair<Holding, std::uint64_t> least;
  for (const auto& client : clients_) {
    if (client->ticket == 0) continue;
    const std::pair claim(waiting_of(client->process), client->ticket);
    if (claim.first.of_user >= kMaxWaitingOfUser || claim.first.of_process >= kMaxWaitingOfProcess) continue;
    if (next != nullptr && least < claim) continue;
    next = client.get();
    least = claim;
  }
  return next;
}

void Server::log_cut_off(const Client& client, const std::string& reason) {
  ++cut_off_;
  log::warn("A client of the admin socket (process {}, user {}) was disconnected. {}.", client.process.id,
            client.process.user, reason);
}

void Server::Client::respond(const std::string& response) {
  unsent = response + '\n';
  sent = 0;
  unread_since_ns = segment::monotonic_ns();
}

bool Server::serve(Client& client) {
  if (!client.unsent.empty()) return send(client);
  const bool open = client.held() || receive(client);
  answer_lines(client);
  const bool sent = send(client);
  const bool more = client.busy();
  if (sent && client.unread_bytes() > kMaxUnsentBytes) {
    log_cut_off(client, "Its response has " + std::to_string(client.unsent.size()) +
                            " bytes, of which at most " + std::to_string(kMaxUnsentBytes) +
                            " are kept until it reads them. Read long lists in pages");
    return false;
  }
  return sent && !client.request_too_long() && (open || more);
}

/// Receives from a client until a request is complete or too long, or no data is left. Returns false if the
/// client has closed its end or the connection has failed.
bool Server::receive(Client& client) {
  char buffer[4096];
  while (client.received.size() <= kMaxRequestBytes) {
    const ssize_t bytes = receive_bytes(client, buffer);
    if (bytes == 0) return false;
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    client.received.append(buffer, static_cast<std::size_t>(bytes));
    client.last_active = polls_;
    if (client.received.find('\n') != std::string::npos) return true;
  }
  return true;
}

/// Receives bytes as recv(2) does. Keeps the first descriptor that is passed along for the next request, and
/// closes further ones.
ssize_t Server::receive_bytes(Client& client, std::span<char> buffer) {
  iovec bytes{buffer.data(), buffer.size()};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * 4)];
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  const ssize_t got = ::recvmsg(client.fd, &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return got;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
      FileDescriptor taken(fd);
      if (!client.passed) client.passed = std::move(taken);
    }
  }
  return got;
}

void Server::answer_lines(Client& client) {
  std::size_t end;
  for (int i = 0; i < kRequestsPerTurn && may_answer() && client.unsent.empty() && !client.waits &&
                  (end = client.received.find('\n')) != std::string::npos;
       ++i) {
    --answers_left_;
    FileDescriptor passed = std::move(client.passed);
    const std::string reply = answer(client, client.received.substr(0, end), passed);
    if (client.ticket != 0) {
      client.passed = std::move(passed);
      return;
    }
    client.received.erase(0, end + 1);
    if (!reply.empty()) client.respond(reply);
    if (!send(client)) return;
  }
  if (client.request_too_long() && client.unsent.empty())
    client.respond(error_line(nullptr, kInvalidRequest,
                              "A request has at most " + std::to_string(kMaxRequestBytes) + " bytes."));
}

std::string Server::answer(Client& client, const std::string& request, const FileDescriptor& passed) {
  const bool was_queued = client.ticket != 0;
  std::string response = registry_.answer(request, client.access, passed, [&]() -> Receiver {
    if (!was_queued) client.ticket = ++tickets_;
    if (next_queued() != &client) return {};
    client.ticket = 0;
    client.waits = true;
    const std::uint64_t number = client.number;
    return {[this, number](const std::string& line) { answer_later(number, line); },
            [this, number] { return is_connected(number); }};
  });
  if (client.ticket != 0 && !was_queued) ++queued_;
  if (!response.empty()) client.waits = false;
  return response;
}

bool Server::is_connected(std::uint64_t client) const {
  return std::any_of(clients_.begin(), clients_.end(),
                     [client](const auto& one) { return one->number == client && one->fd >= 0; });
}

void Server::answer_later(std::uint64_t client, const std::string& response) {
  const auto at = std::find_if(clients_.begin(), clients_.end(),
                               [client](const auto& one) { return one->number == client; });
  if (at == clients_.end() || !(*at)->waits) return;
  (*at)->waits = false;
  (*at)->respond(response);
}

bool Server::send(Client& client) {
  while (!client.unsent.empty()) {
    const ssize_t bytes =
        ::send(client.fd, client.unsent.data() + client.sent, client.unread_bytes(), MSG_NOSIGNAL);
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    client.sent += static_cast<std::size_t>(bytes);
    if (client.unread_bytes() > 0) continue;
    client.unsent.clear();
    client.sent = 0;
  }
  return true;
}

}  // namespace sluice::admin
