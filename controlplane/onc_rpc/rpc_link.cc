// SPDX-License-Identifier: Apache-2.0
#include "controlplane/onc_rpc/rpc_link.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "dataplane/rpc/message.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::onc_rpc {
namespace {

/// Maximum size of a call's record mark, header and credential.
constexpr std::size_t kMaxHeaderBytes = 4 + rpc::kMinCallBytes + rpc::kMaxAuthBytes;

std::vector<std::byte> call_record(std::uint32_t xid, const Procedure& procedure,
                                   std::span<const std::byte> arguments, bool credential) {
  std::array<std::byte, rpc::kMaxAuthBytes> body;
  xdr::Writer sys(body);
  char host[rpc::kMaxMachineName + 1] = "";
  ::gethostname(host, sizeof host - 1);
  rpc::encode_auth_sys(sys, {.machine_name = host, .uid = ::geteuid(), .gid = ::getegid()});
  rpc::CallHeader header{.xid = rpc::Xid{xid},
                         .program = procedure.program,
                         .version = procedure.version,
                         .procedure = procedure.procedure,
                         .credential = {},
                         .verifier = {}};
  if (credential) header.credential = {rpc::AuthFlavor::Sys, sys.written()};
  std::vector<std::byte> record(kMaxHeaderBytes + arguments.size());
  xdr::Writer writer(record);
  const std::size_t mark = writer.reserve_u32();
  rpc::encode_call(writer, header);
  writer.opaque_fixed(arguments);
  constexpr std::uint32_t kLastFragment = 1u << 31;
  writer.patch_u32(mark, kLastFragment | static_cast<std::uint32_t>(writer.position() - 4));
  record.resize(writer.position());
  return record;
}

int open_socket(const Server& server) {
  int fd;
  if (server.address.ss_family == AF_UNIX)
    fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  else
    fd = tcp::connecting_socket(server.address.ss_family, server.privileged_port, tcp::kPeerTimeoutMs,
                                server.from ? &*server.from : nullptr);
  if (fd >= 0) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

}  // namespace

Server server_at(const PeerAddress& address, std::uint16_t port, bool privileged_port) {
  Server server{.address = {}, .address_bytes = 0, .privileged_port = privileged_port};
  server.address_bytes = tcp::socket_address(address, port, server.address);
  return server;
}

const char* to_string(Failure failure) {
  switch (failure) {
    case Failure::None:
      return "answers";
    case Failure::NoPrivilegedPort:
      return "requires a port below 1024, but none is available. The control plane needs "
             "CAP_NET_BIND_SERVICE";
    case Failure::Unresolved:
      return "has no address, because its name cannot be resolved";
    case Failure::Unreachable:
      return "cannot be reached";
    case Failure::Lost:
      return "closes the connection without an answer";
    case Failure::TimedOut:
      return "does not answer";
    case Failure::Refused:
      return "refuses the call, or sends an invalid answer";
  }
  return "";
}

void RpcLink::set_server(const Server& server) {
  const bool same = server.address_bytes == server_.address_bytes &&
                    std::memcmp(&server.address, &server_.address, sizeof server.address) == 0;
  if (!same) {
    close();
    next_open_ns_ = 0;
  }
  server_ = server;
}

void RpcLink::call(const Procedure& procedure, std::span<const std::byte> arguments, bool credential,
                   std::uint64_t now_ns, std::uint64_t deadline_ns, Done done) {
  const std::uint32_t xid = next_xid_++;
  const auto decode = [done = std::move(done)](Failure failure, std::span<const std::byte> reply) {
    xdr::Reader reader(reply);
    if (failure != Failure::None) return done(failure, {});
    const auto decoded = rpc::decode_reply(reader);
    if (!decoded.ok || !decoded.header.success()) return done(Failure::Refused, {});
    done(Failure::None, reader);
  };
  add({.xid = xid,
       .record = call_record(xid, procedure, arguments, credential),
       .deadline_ns = deadline_ns,
       .sent_ns = now_ns,
       .done = decode});
}

void RpcLink::pass_on(std::span<const std::byte> message, std::uint64_t now_ns, std::uint64_t deadline_ns,
                      PassedOn done) {
  const std::uint32_t xid = next_xid_++;
  const auto head = tcp::record_head(message.size(), xid);
  std::vector<std::byte> record(head.begin(), head.end());
  const auto rest = message.subspan(xdr::kUnit);
  record.insert(record.end(), rest.begin(), rest.end());
  add({.xid = xid,
       .record = std::move(record),
       .deadline_ns = deadline_ns,
       .sent_ns = now_ns,
       .once = true,
       .done = std::move(done)});
}

void RpcLink::add(Call call) {
  Call& added = calls_.emplace_back(std::move(call));
  if (state_ != State::Up) return;
  added.sent = true;
  unsent_.insert(unsent_.end(), added.record.begin(), added.record.end());
}

void RpcLink::open(std::uint64_t now_ns) {
  if (now_ns < next_open_ns_) return;
  next_open_ns_ = now_ns + kReopenNs;
  fd_ = open_socket(server_);
  if (fd_ < 0) {
    const bool port = server_.privileged_port && (fd_ == -EACCES || fd_ == -EADDRINUSE);
    fd_ = -1;
    return fail_all(port ? Failure::NoPrivilegedPort : Failure::Unreachable);
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&server_.address);
  state_ = State::Connecting;
  if (::connect(fd_, address, server_.address_bytes) == 0) return connected(now_ns);
  if (errno == EINPROGRESS) return;
  close();
  fail_all(Failure::Unreachable);
}

void RpcLink::connected(std::uint64_t now_ns) {
  state_ = State::Up;
  ++connections_;
  const auto ended = take([](const Call& call) { return call.once && call.sent; });
  for (Call& call : calls_) {
    call.sent = true;
    call.sent_ns = now_ns;
    unsent_.insert(unsent_.end(), call.record.begin(), call.record.end());
  }
  send();
  end(ended, Failure::Lost);
}

void RpcLink::send() {
  while (sent_ < unsent_.size()) {
    const ssize_t bytes = ::send(fd_, unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (bytes < 0) return;  // receive() sees the error that ended the connection
    sent_ += static_cast<std::size_t>(bytes);
  }
  unsent_.clear();
  sent_ = 0;
}

void RpcLink::receive() {
  const std::uint32_t connection = connections_;
  constexpr int kReceivesPerTurn = 16;
  for (int i = 0; i < kReceivesPerTurn; ++i) {
    const std::span<std::byte> room = stream_.room();
    const ssize_t bytes = ::recv(fd_, room.data(), room.size(), 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (bytes <= 0) return lost();
    stream_.received(static_cast<std::size_t>(bytes));
    for (;;) {
      const auto step = stream_.next();
      if (step == tcp::RecordStream::Step::Broken) return lost();
      if (step == tcp::RecordStream::Step::NeedBytes) break;
      if (step == tcp::RecordStream::Step::NeedMemory) {
        long_reply_.resize(kMaxReplyBytes);
        stream_.lend(long_reply_.data());
        continue;
      }
      // The reply is copied, because completing the call may close this connection and reset the stream.
      const std::vector<std::byte> reply(stream_.record().begin(), stream_.record().end());
      stream_.take_memory();
      take_reply(reply);
      if (connections_ != connection || state_ != State::Up) return;
    }
  }
}

/// Completes the call of a reply. A reply that was too long has been skipped except for its XID.
void RpcLink::take_reply(std::span<const std::byte> reply) {
  xdr::Reader first(reply);
  const std::uint32_t xid = first.u32();
  if (!first.ok()) return;
  end(take([xid](const Call& call) { return call.xid == xid; }), Failure::None, reply);
}

/// Handles the loss of the connection. Calls that were not retransmitted before are sent on the next
/// connection; the others fail.
void RpcLink::lost() {
  close();
  end(take([](Call& call) { return call.once || std::exchange(call.lost, true); }), Failure::Lost);
}

void RpcLink::expire(std::uint64_t now_ns) {
  const auto ended = take([now_ns](const Call& call) { return call.deadline_ns <= now_ns; });
  const bool silent = std::any_of(ended.begin(), ended.end(),
                                  [&](const Call& call) { return now_ns - call.sent_ns >= kSilentLinkNs; });
  if (silent) close();
  end(ended, Failure::TimedOut);
}

void RpcLink::fail_all(Failure failure) {
  end(std::exchange(calls_, {}), failure);
}

template <typename Which>
std::vector<RpcLink::Call> RpcLink::take(const Which& which) {
  std::vector<Call> taken;
  std::erase_if(calls_, [&](Call& call) {
    if (!which(call)) return false;
    taken.push_back(std::move(call));
    return true;
  });
  return taken;
}

void RpcLink::end(const std::vector<Call>& calls, Failure failure, std::span<const std::byte> reply) {
  for (const Call& call : calls) call.done(failure, reply);
}

void RpcLink::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  state_ = State::Down;
  place_ = PollSet::kNowhere;
  unsent_.clear();
  sent_ = 0;
  stream_.reset();
}

void RpcLink::prepare(PollSet& set) {
  place_ = PollSet::kNowhere;
  if (state_ == State::Down) {
    if (!calls_.empty()) set.wake_at(next_open_ns_);
    for (const Call& call : calls_) set.wake_at(call.deadline_ns);
    return;
  }
  const bool writing = state_ == State::Connecting || sent_ < unsent_.size();
  place_ = set.add(fd_, static_cast<short>((state_ == State::Up ? POLLIN : 0) | (writing ? POLLOUT : 0)));
  for (const Call& call : calls_) set.wake_at(call.deadline_ns);
  if (calls_.empty()) set.wake_at(idle_since_ns_ + kIdleLinkNs);
}

void RpcLink::poll(const PollSet& set, std::uint64_t now_ns) {
  const short events = set.events(place_);
  if (state_ == State::Connecting && events != 0) {
    int error = 0;
    socklen_t bytes = sizeof error;
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error == 0) {
      connected(now_ns);
    } else {
      close();
      fail_all(Failure::Unreachable);
    }
  } else if (state_ == State::Up && events != 0) {
    if ((events & POLLOUT) != 0) send();
    if ((events & ~POLLOUT) != 0) receive();
  }
  expire(now_ns);
  if (!calls_.empty()) idle_since_ns_ = now_ns;
  if (state_ == State::Down && !calls_.empty()) open(now_ns);
  if (state_ != State::Down && calls_.empty() && now_ns >= idle_since_ns_ + kIdleLinkNs) close();
}

}  // namespace sluice::onc_rpc
