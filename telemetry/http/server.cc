// SPDX-License-Identifier: Apache-2.0
#include "telemetry/http/server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/sockets.h"
#include "telemetry/http/host_names.h"
#include "telemetry/http/listener.h"

namespace sluice::http {
namespace {

/// Interval between two checks for connections whose deadline has passed.
constexpr std::uint64_t kSweepNs = 250'000'000;

struct DestroyResponse {
  void operator()(MHD_Response* response) const { MHD_destroy_response(response); }
};
using Response = std::unique_ptr<MHD_Response, DestroyResponse>;

/// Creates a response with a copy of the text. Returns null if memory is exhausted.
Response make_response(std::string_view text, const std::string& type, const Site& site) {
  Response response(
      MHD_create_response_from_buffer(text.size(), const_cast<char*>(text.data()), MHD_RESPMEM_MUST_COPY));
  if (!response) return response;
  MHD_add_response_header(response.get(), "Content-Type", type.c_str());
  MHD_add_response_header(response.get(), "Cache-Control", "no-store");
  MHD_add_response_header(response.get(), "Connection", "close");
  for (const auto& [name, value] : site.headers)
    MHD_add_response_header(response.get(), name.c_str(), value.c_str());
  return response;
}

/// Returns the source that a connection is counted for. All addresses of an IPv6 /64 network are one source.
PeerAddress source_of(MHD_Connection* connection) {
  const sockaddr* const from =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
  sockaddr_storage address{};
  std::memcpy(&address, from, from->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  PeerAddress source = peer_address(address);
  if (!is_mapped_ipv4(source)) std::fill(source.bytes.begin() + 8, source.bytes.end(), 0);
  return source;
}

constexpr const char* kText = "text/plain; charset=utf-8";

}  // namespace

class Server::State {
 public:
  State(Site site, const Limits& limits);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  std::uint16_t port() const { return port_; }
  void prepare(PollSet& set);
  void poll(const PollSet& set, std::uint64_t now_ns);

 private:
  struct Open {
    MHD_Connection* connection;
    int fd;
    PeerAddress source;
    std::uint64_t since_ns;
    bool ended = false;  ///< shut down, not closed by the library yet
  };

  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* path, const char* method,
                               const char* version, const char* body, std::size_t* body_bytes, void** own);
  static void on_connection(void* self, MHD_Connection* connection, void** own,
                            MHD_ConnectionNotificationCode what);
  MHD_Result answer(MHD_Connection* connection, std::string_view path, std::string_view method);
  MHD_Result refuse(MHD_Connection* connection, unsigned status, std::string_view sentence) const;
  struct Kept;
  MHD_Result serve(MHD_Connection* connection, Kept& kept);
  std::string known_paths() const;
  void end_overdue();
  static void end(Open& one);
  Open& most_dispensable();

  /// A page with its last response.
  struct Kept {
    const Page& page;
    Response response{};
    unsigned status = 0;
    std::uint64_t made_ns = 0;
  };

  const Site site_;
  const Limits limits_;
  std::vector<Kept> kept_;
  std::vector<Open> open_;  ///< in order of arrival
  std::uint16_t port_ = 0;
  MHD_Daemon* daemon_ = nullptr;
  std::size_t place_ = PollSet::kNowhere;    ///< of the library's descriptor in the set of this iteration
  std::uint64_t next_ns_ = PollSet::kNever;  ///< time of the next run without an event
  std::uint64_t now_ns_ = 0;
};

Server::State::State(Site site, const Limits& limits) : site_(std::move(site)), limits_(limits) {
  for (const Page& page : site_.pages) kept_.push_back({.page = page});
  FileDescriptor listener;
  try {
    listener = listen_on(site_.address);
  } catch (const std::exception& error) {
    throw SetupError("Cannot serve " + site_.what + " on " + error.what() + ". " + site_.advice);
  }
  port_ = port_of(listener);
  daemon_ = MHD_start_daemon(MHD_USE_EPOLL, 0, nullptr, nullptr, on_request, this, MHD_OPTION_LISTEN_SOCKET,
                             listener.get(), MHD_OPTION_CONNECTION_LIMIT, limits.connections,
                             MHD_OPTION_CONNECTION_MEMORY_LIMIT, limits.connection_bytes,
                             MHD_OPTION_NOTIFY_CONNECTION, on_connection, this, MHD_OPTION_END);
  if (daemon_ == nullptr)
    throw SetupError("Cannot serve " + site_.what + " on " + site_.address +
                     " (no file descriptors or no memory left). " + site_.advice);
  listener.release();
}

Server::State::~State() {
  MHD_stop_daemon(daemon_);
}

void Server::State::prepare(PollSet& set) {
  MHD_UNSIGNED_LONG_LONG library_ms = 0;
  const bool at_once = MHD_get_timeout(daemon_, &library_ms) == MHD_YES && library_ms == 0;
  place_ = set.add(MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, POLLIN);
  next_ns_ = at_once ? 0 : open_.empty() ? PollSet::kNever : now_ns_ + kSweepNs;
  set.wake_at(next_ns_);
}

void Server::State::poll(const PollSet& set, std::uint64_t now_ns) {
  if (set.events(place_) == 0 && now_ns < next_ns_) return;
  now_ns_ = now_ns;
  MHD_run(daemon_);
  end_overdue();
}

void Server::State::end_overdue() {
  for (Open& one : open_)
    if (now_ns_ - one.since_ns >= limits_.deadline_ns) end(one);
  auto left = std::count_if(open_.begin(), open_.end(), [](const Open& one) { return !one.ended; });
  for (const auto keep = limits_.connections - limits_.room; left > keep; --left) end(most_dispensable());
}

void Server::State::end(Open& one) {
  if (!one.ended) ::shutdown(one.fd, SHUT_RDWR);
  one.ended = true;
}

/// Returns the oldest connection of the source with the most connections. If its request had arrived whole,
/// it would have been answered already. Requires at least one connection that has not ended.
Server::State::Open& Server::State::most_dispensable() {
  Open* found = &open_.front();
  std::ptrdiff_t most = 0;
  for (Open& one : open_) {
    if (one.ended) continue;
    const auto of_source = std::count_if(open_.begin(), open_.end(), [&one](const Open& other) {
      return !other.ended && other.source == one.source;
    });
    if (of_source <= most) continue;
    most = of_source;
    found = &one;
  }
  return *found;
}

void Server::State::on_connection(void* self, MHD_Connection* connection, void**,
                                  MHD_ConnectionNotificationCode what) {
  auto& open = static_cast<State*>(self)->open_;
  if (what == MHD_CONNECTION_NOTIFY_STARTED)
    open.push_back({connection,
                    MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
                    source_of(connection), static_cast<State*>(self)->now_ns_});
  else
    std::erase_if(open, [connection](const Open& one) { return one.connection == connection; });
}

/// Answers a request as soon as its headers are complete. The body is not read.
MHD_Result Server::State::on_request(void* self, MHD_Connection* connection, const char* path,
                                     const char* method, const char*, const char*, std::size_t*, void**) {
  State& state = *static_cast<State*>(self);
  try {
    return state.answer(connection, path, method);
  } catch (const std::exception&) {
    return state.refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                        "The page is not available at present. Try again later.");
  }
}

MHD_Result Server::State::answer(MHD_Connection* connection, std::string_view path, std::string_view method) {
  const char* const host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
  if (site_.name && (host == nullptr || !is_ours(host, *site_.name)))
    return refuse(connection, MHD_HTTP_MISDIRECTED_REQUEST,
                  "This server has another name. Request the page by an address. " + site_.name_advice);
  if (method != "GET" && method != "HEAD")
    return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "The page supports only GET and HEAD.");
  for (Kept& kept : kept_)
    if (kept.page.path == path) return serve(connection, kept);
  return refuse(connection, MHD_HTTP_NOT_FOUND, known_paths());
}

/// Serves a page, rendering it again if its last response is too old. A peer that is still reading the old
/// response keeps it.
MHD_Result Server::State::serve(MHD_Connection* connection, Kept& kept) {
  if (!kept.response || now_ns_ - kept.made_ns >= kept.page.keep_ns.value_or(limits_.look_ns)) {
    const Content content = kept.page.make();
    kept.response = make_response(content.text, kept.page.type, site_);
    kept.status = content.status;
    kept.made_ns = now_ns_;
  }
  return kept.response ? MHD_queue_response(connection, kept.status, kept.response.get()) : MHD_NO;
}

std::string Server::State::known_paths() const {
  std::string text = "There are ";
  for (std::size_t i = 0; i < kept_.size(); ++i)
    text += (i == 0 ? "" : i + 1 < kept_.size() ? ", " : " and ") + kept_[i].page.path;
  return text + '.';
}

MHD_Result Server::State::refuse(MHD_Connection* connection, unsigned status,
                                 std::string_view sentence) const {
  const Response response = make_response(sentence, kText, site_);
  if (response && status == MHD_HTTP_METHOD_NOT_ALLOWED)
    MHD_add_response_header(response.get(), MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  return response ? MHD_queue_response(connection, status, response.get()) : MHD_NO;
}

Server::Server(Site site, const Limits& limits) : state_(make_owned<State>(std::move(site), limits)) {}

Server::~Server() = default;

std::uint16_t Server::port() const {
  return state_->port();
}

void Server::prepare(PollSet& set) {
  state_->prepare(set);
}

void Server::poll(const PollSet& set, std::uint64_t now_ns) {
  state_->poll(set, now_ns);
}

// --- Listening sockets

namespace {

/// Length of the queue of connections that are not accepted yet. A client that finds the queue full retries
/// after one second.
constexpr int kBacklog = 1024;

[[noreturn]] void refuse(const std::string& address, const std::string& problem) {
  throw std::runtime_error(address + " (" + problem + ")");
}

std::string host_in(const std::string& address, std::size_t colon) {
  const std::string host = address.substr(0, colon);
  if (host == "localhost") return "127.0.0.1";
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

FileDescriptor listen_on(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) refuse(address, "it has no port");
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(host_in(address, colon).c_str(), address.c_str() + colon + 1, &hints, &found);
  if (error != 0) refuse(address, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  FileDescriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(socket.get(), kBacklog) != 0)
    refuse(address, std::strerror(errno));
  return socket;
}

std::uint16_t port_of(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

namespace {

bool is_address(int family, std::string_view text) {
  in6_addr address;
  return ::inet_pton(family, std::string(text).c_str(), &address) == 1;
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool same_name(std::string_view one, std::string_view other) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [&](char a, char b) { return small(a) == small(b); });
}

}  // namespace

bool is_ours(std::string_view host, std::string_view name) {
  if (host.find('\0') != std::string_view::npos) return false;
  const bool bracket = host.starts_with('[');
  const std::size_t end = bracket ? host.find(']') : std::min(host.find(':'), host.size());
  if (end == std::string_view::npos) return false;
  const std::string_view behind = host.substr(bracket ? end + 1 : end);
  if (!behind.empty() && (behind.front() != ':' || !is_port(behind.substr(1)))) return false;
  // The zone is not compared: it only names the interface on which the request arrived.
  if (bracket) return is_address(AF_INET6, host.substr(1, std::min(end, host.find('%')) - 1));
  host = host.substr(0, end);
  return is_address(AF_INET, host) || same_name(host, "localhost") ||
         (!name.empty() && same_name(host, name));
}

}  // namespace sluice::http
