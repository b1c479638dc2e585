// SPDX-License-Identifier: Apache-2.0
//
// Cost of the same messages over TCP on this host's loopback interface, with the kernel's sockets and with
// libtirpc: baselines for the figures over RDMA. Client and server have a processor each.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <rpc/rpc.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Sizes of an RPC NULL call and its reply, with AUTH_NONE and record marks (RFC 5531).
constexpr std::size_t kCallBytes = 44;
constexpr std::size_t kReplyBytes = 28;
constexpr std::size_t kBlockBytes = 1 << 20;
constexpr u_long kProgram = 0x20000099;
constexpr u_long kVersion = 1;

struct Listener {
  int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  Listener() {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(socket, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(socket, 1) != 0 ||
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      throw std::runtime_error("no loopback socket");
  }
  ~Listener() { ::close(socket); }
};

void no_delay(int socket) {
  const int one = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

bool receive_all(int socket, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, to, bytes, 0);
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}
bool send_all(int socket, const char* from, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, from, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    from += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

/// Keeps `depth` calls outstanding, each of which the server answers. Returns calls per second, and the
/// median round trip at depth 1.
std::pair<double, double> exchange(std::size_t call, std::size_t reply, unsigned depth, double seconds) {
  Listener listener;
  std::thread server([&] {
    pin(kServerCpu);
    const int socket = ::accept(listener.socket, nullptr, nullptr);
    no_delay(socket);
    std::vector<char> in(call);
    std::vector<char> out(reply);
    while (receive_all(socket, in.data(), call) && send_all(socket, out.data(), reply)) {
    }
    ::close(socket);
  });
  pin(kClientCpu);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  ::connect(socket, reinterpret_cast<sockaddr*>(&listener.address), sizeof listener.address);
  no_delay(socket);
  std::vector<char> out(call);
  std::vector<char> in(reply);
  std::vector<double> round_trips;
  std::size_t calls = 0;
  for (unsigned i = 1; i < depth; ++i) send_all(socket, out.data(), call);
  const auto begin = Clock::now();
  auto at = begin;
  while (std::chrono::duration<double>(at - begin).count() < seconds) {
    send_all(socket, out.data(), call);
    receive_all(socket, in.data(), reply);
    const auto now = Clock::now();
    round_trips.push_back(std::chrono::duration<double, std::micro>(now - at).count());
    at = now;
    ++calls;
  }
  const double rate = static_cast<double>(calls) / std::chrono::duration<double>(at - begin).count();
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  server.join();
  return {rate, median(std::move(round_trips))};
}

extern "C" void null_program(svc_req*, SVCXPRT* transport) {
  svc_sendreply(transport, reinterpret_cast<xdrproc_t>(reinterpret_cast<void*>(xdr_void)), nullptr);
}

/// Returns NULL calls per second of libtirpc's client to libtirpc's server, one outstanding, because that
/// client supports only one.
double libtirpc_calls(double seconds) {
  Listener listener;
  const pid_t server = ::fork();
  if (server == 0) {
    pin(kServerCpu);
    SVCXPRT* transport = svc_vc_create(listener.socket, 0, 0);
    if (transport == nullptr || !svc_reg(transport, kProgram, kVersion, null_program, nullptr)) ::_exit(1);
    svc_run();
    ::_exit(0);
  }
  pin(kClientCpu);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  ::connect(socket, reinterpret_cast<sockaddr*>(&listener.address), sizeof listener.address);
  no_delay(socket);
  netbuf address{sizeof listener.address, sizeof listener.address, &listener.address};
  CLIENT* client = clnt_vc_create(socket, &address, kProgram, kVersion, 0, 0);
  if (client == nullptr) throw std::runtime_error("no libtirpc client");
  const auto begin = Clock::now();
  std::size_t calls = 0;
  const timeval patience{5, 0};
  const auto nothing = reinterpret_cast<xdrproc_t>(reinterpret_cast<void*>(xdr_void));
  while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
    if (clnt_call(client, 0, nothing, nullptr, nothing, nullptr, patience) != RPC_SUCCESS)
      throw std::runtime_error("a libtirpc call failed");
    ++calls;
  }
  const double rate =
      static_cast<double>(calls) / std::chrono::duration<double>(Clock::now() - begin).count();
  clnt_destroy(client);
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  return rate;
}

constexpr Side kSides[] = {
    {"null", [](double seconds) { return exchange(kCallBytes, kReplyBytes, 64, seconds).first; }},
    {"null_p50_us", [](double seconds) { return exchange(kCallBytes, kReplyBytes, 1, seconds).second; }},
    {"read1m", [](double seconds) { return exchange(128, kBlockBytes, 4, seconds).first * kBlockBytes; }},
    {"write1m", [](double seconds) { return exchange(kBlockBytes, 160, 1, seconds).first * kBlockBytes; }},
    {"libtirpc_null", libtirpc_calls},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
