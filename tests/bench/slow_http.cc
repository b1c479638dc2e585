// SPDX-License-Identifier: Apache-2.0
//
// Longest time of a probe of /healthz, in milliseconds, concurrently with 30 slow connections: half of them
// send a request byte by byte, half do not read the metrics that they have requested. Real sockets of this
// host.
#include "telemetry/exporter.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "controlplane/onc_rpc/poll_thread.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/segment/heartbeat.h"
#include "tests/bench/worker.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::bench {
namespace {

constexpr std::size_t kSlowConnections = 30;
constexpr int kProbes = 200;
constexpr std::string_view kProbe = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
constexpr std::string_view kMetrics = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
constexpr std::string_view kBegun = "GET /metrics HTTP/1.1\r\nX: ";

class Site {
 public:
  Site() {
    segment::ConfigBlock config;
    config.generation = 1;
    config.reactors = 1;
    segment_.layout().config.write(config);
    const std::uint64_t now_ns = segment::monotonic_ns();
    segment::start_heartbeat(segment_.layout().control_plane, now_ns, now_ns);
    segment::start_heartbeat(segment_.layout().data_plane, now_ns, now_ns);
    segment_.layout().reactors[0].info.write({.state = segment::ReactorState::Running});
  }
  FileDescriptor connect() const {
    FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int room = 1;  // the kernel applies its minimum, so an unread response stays in the server
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(exporter_.port());
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      throw std::runtime_error("The exporter takes no connection.");
    return fd;
  }
  double probe_ms() const {
    const std::uint64_t begun_ns = segment::monotonic_ns();
    const FileDescriptor fd = connect();
    static_cast<void>(::send(fd.get(), kProbe.data(), kProbe.size(), MSG_NOSIGNAL));
    std::string answer;
    char bytes[1024];
    for (ssize_t got; (got = ::recv(fd.get(), bytes, sizeof bytes, 0)) > 0;)
      answer.append(bytes, static_cast<std::size_t>(got));
    if (answer.find("\r\n\r\n") == std::string::npos) throw std::runtime_error("A probe has no answer.");
    return static_cast<double>(segment::monotonic_ns() - begun_ns) * 1e-6;
  }

 private:
  lab::TestSegment segment_{"slow-http"};
  telemetry::PendingKeys pending_;
  telemetry::Exporter exporter_{"127.0.0.1:0", segment_.layout(), pending_};
  onc_rpc::PollThread thread_{"services"};
  const onc_rpc::PollThread::Attachment polled_{thread_, exporter_};
};

double worst_ms(std::size_t slow_connections) {
  const Site site;
  std::vector<FileDescriptor> slow;
  for (std::size_t i = 0; i < slow_connections; ++i) {
    slow.push_back(site.connect());
    const std::string_view request = i % 2 == 0 ? kMetrics : kBegun;
    static_cast<void>(::send(slow.back().get(), request.data(), request.size(), MSG_NOSIGNAL));
  }
  double worst = 0;
  for (int probe = 0; probe < kProbes; ++probe) {
    for (std::size_t i = 1; i < slow.size(); i += 2)
      static_cast<void>(::send(slow[i].get(), "x", 1, MSG_NOSIGNAL));
    worst = std::max(worst, site.probe_ms());
  }
  return worst;
}

constexpr Side kSides[] = {{"beside_slow", [](double) { return worst_ms(kSlowConnections); }},
                           {"alone", [](double) { return worst_ms(0); }}};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
