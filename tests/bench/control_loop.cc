// SPDX-License-Identifier: Apache-2.0
//
// Longest iteration of the control plane's loop. A whole control plane runs in real time while 100,000
// simulated clients reconnect, its upstream has a name that cannot be resolved and an address that accepts
// calls of MOUNT without answering, and the configuration is reloaded every second.
//
// Also measures the longest iteration while a client of the admin socket lists 131,072 connections in pages.
//
// The result is the time of an iteration without the time for which the scheduler made it wait for a
// processor (/proc/thread-self/schedstat), so it includes blocking of the loop, but not other programs.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "controlplane/control_plane.h"
#include "controlplane/mount/protocol.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/log/log.h"
#include "dataplane/rpc/message.h"
#include "dataplane/segment/segment.h"
#include "dataplane/tcp/sockets.h"
#include "dataplane/xdr/cursor.h"
#include "tests/bench/listener.h"
#include "tests/bench/listing_client.h"
#include "tests/bench/simulated_fleet.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint64_t kWaitNs = 2 * kMs;  // wait of the loop while it has work (controlplane/main.cc)
constexpr std::uint64_t kAskMountNs = 100 * kMs;
constexpr std::uint64_t kReloadNs = 1'000 * kMs;
constexpr std::uint64_t kGiveUpNs = 120'000 * kMs;

/// Time for which this thread has waited for a processor.
class SchedulerDelay {
 public:
  std::uint64_t ns() const {
    char text[96] = {};
    if (::pread(file_.get(), text, sizeof text - 1, 0) <= 0) return 0;
    unsigned long long ran = 0;
    unsigned long long waited = 0;
    return std::sscanf(text, "%llu %llu", &ran, &waited) == 2 ? waited : 0;
  }

 private:
  const FileDescriptor file_{::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)};
};

/// A client of MOUNT over UDP.
class MountClient {
 public:
  explicit MountClient(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    bytes_ = tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 1), port, server_);
  }
  void ask() {
    std::array<std::byte, 512> call;
    xdr::Writer writer(call);
    rpc::CallHeader header;
    header.xid = rpc::Xid{++xid_};
    header.program = mount::kMountProgram;
    header.version = mount::kMountVersion;
    header.procedure = mount::kMnt;
    rpc::encode_call(writer, header);
    writer.string("/export");
    ::sendto(socket_.get(), call.data(), writer.position(), 0, reinterpret_cast<const sockaddr*>(&server_),
             bytes_);
  }

 private:
  const FileDescriptor socket_;
  sockaddr_storage server_{};
  socklen_t bytes_ = 0;
  std::uint32_t xid_ = 0;
};

class Loop {
 public:
  Loop() {
    segment::Segment::remove(name_);
    std::ofstream(file_)
        << "segment = \"" << name_ << "\"\nlog_level = \"error\"\n"
        << "[reactor]\ncount = 8\ncpus = [0, 0, 0, 0, 0, 0, 0, 0]\n"
        // No data plane runs, so the credits need no memory; the check of a machine's memory counts them.
        << "[transport]\ncredits = 1\nmax_connections = 16384\n"
        << "[device]\ndriver = \"softroce\"\nethdev = \"x\"\naddresses = [\"192.0.2.1/24\"]\n"
        << "[admission]\nmax_requests_per_second = 10000\n[policy]\nmax_credits = 1\n"
        << "[admin]\nsocket = \"" << file_ << ".sock\"\n[metrics]\naddress = \"\"\n"
        << "[mount]\nport = " << mount_port_ << "\nrpcbind = false\n"
        << "[[upstream]]\nname = \"silent\"\naddress = [\"127.0.0.1\", \"silent.invalid\"]\n"
        << "port = " << silent_.port() << "\nprograms = [\"nfs3\"]\nmount_port = " << silent_.port() << "\n";
    log::set_level(log::Level::Error);
    segment_ = segment::Segment::open_or_create(name_);
  }
  ~Loop() {
    plane_.reset();
    segment::Segment::remove(name_);
    for (const char* ending : {"", ".sock", ".sock.lock"}) ::unlink((file_ + ending).c_str());
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Returns the longest iteration in milliseconds. The data plane has lost all connections, the clients
  /// reconnect, and then stay connected for some seconds.
  double longest_pause_ms(std::uint32_t clients) {
    SimulatedClients fleet(segment_->layout(), clients);
    SimulatedReactors reactors(segment_->layout(), [&](std::uint32_t up) { fleet.on_up(up); });
    plane_ = std::make_unique<controlplane::ControlPlane>(config::load_file(file_));
    MountClient mount(mount_port_);
    const std::uint64_t start_ns = segment::monotonic_ns();
    fleet.outage(start_ns);
    std::uint64_t all_ns = 0;
    std::uint64_t asked_ns = 0;
    std::uint64_t reloaded_ns = 0;
    while (all_ns == 0 || segment::monotonic_ns() < all_ns + 3 * kReloadNs) {
      const std::uint64_t now_ns = segment::monotonic_ns();
      if (all_ns == 0 && fleet.connected() == clients) all_ns = now_ns;
      if (now_ns - start_ns > kGiveUpNs) break;
      if (now_ns - asked_ns > kAskMountNs) mount.ask(), asked_ns = now_ns;
      if (now_ns - reloaded_ns > kReloadNs) {
        plane_->reload(
            [this](const admin::ReloadResult& result) { reloads_ += result.problem.empty() ? 1 : 0; });
        reloaded_ns = now_ns;
      }
      fleet.advance(now_ns);
      reactors.advance(now_ns);
      turn();
      std::this_thread::sleep_for(std::chrono::nanoseconds(kWaitNs));
    }
    if (reloads_ == 0 || fleet.connected() < clients) {
      std::fprintf(stderr, "%zu of %u clients are connected, %d reloads\n", fleet.connected(), clients,
                   reloads_);
      return -1;  // the measurement is invalid
    }
    return static_cast<double>(longest_ns_) * 1e-6;
  }

  /// Returns the longest iteration, in milliseconds, while `listings` clients of the admin socket list
  /// `clients` connections, which a data plane already has.
  double longest_listing_ms(std::uint32_t clients, std::size_t listings) {
    SimulatedReactors reactors(segment_->layout(), [](std::uint32_t) {});
    reactors.fill(clients);
    plane_ = std::make_unique<controlplane::ControlPlane>(config::load_file(file_));
    const std::uint64_t start_ns = segment::monotonic_ns();
    while (segment::monotonic_ns() < start_ns + 3 * kReloadNs) settle(reactors);
    longest_ns_ = 0;
    std::deque<ListingClient> under_way;
    while (under_way.size() < listings) under_way.emplace_back(file_ + ".sock");
    std::size_t complete = 0;
    while (!under_way.empty() && segment::monotonic_ns() < start_ns + kGiveUpNs) {
      std::erase_if(under_way, [&](ListingClient& client) {
        if (client.advance()) return false;
        complete += client.complete() && client.listed() == clients ? 1 : 0;
        return true;
      });
      settle(reactors);
    }
    if (complete < listings) {
      std::fprintf(stderr, "%zu of %zu lists of %u connections are complete\n", complete, listings, clients);
      return -1;  // the measurement is invalid
    }
    return static_cast<double>(longest_ns_) * 1e-6;
  }

 private:
  void settle(SimulatedReactors& reactors) {
    reactors.advance(segment::monotonic_ns());
    turn();
  }

  void turn() {
    const std::uint64_t delayed_ns = delay_.ns();
    const std::uint64_t begun_ns = segment::monotonic_ns();
    plane_->poll(0);
    const std::uint64_t took_ns = segment::monotonic_ns() - begun_ns;
    longest_ns_ = std::max(longest_ns_, took_ns - std::min(took_ns, delay_.ns() - delayed_ns));
  }

  static std::uint16_t free_port() { return Listener().port(); }

  const std::string name_ = "sluice-bench-loop-" + std::to_string(::getpid());
  const std::string file_ = "/tmp/" + name_ + ".toml";
  const Listener silent_;
  const std::uint16_t mount_port_ = free_port();
  const SchedulerDelay delay_;
  Owned<segment::Segment> segment_;
  std::unique_ptr<controlplane::ControlPlane> plane_;
  std::uint64_t longest_ns_ = 0;
  int reloads_ = 0;
};

constexpr std::uint32_t kAll = kFleetReactors * segment::kMaxConnections;
static_assert(kAll == 131'072);

constexpr Side kSides[] = {{"storm_ms", [](double) { return Loop().longest_pause_ms(100'000); }},
                           {"few_ms", [](double) { return Loop().longest_pause_ms(1'000); }},
                           {"listing_ms_131k", [](double) { return Loop().longest_listing_ms(kAll, 1); }},
                           {"listings_ms_131k", [](double) { return Loop().longest_listing_ms(kAll, 4); }},
                           {"listing_ms_1k", [](double) { return Loop().longest_listing_ms(1'000, 1); }}};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
