// SPDX-License-Identifier: Apache-2.0
//
// The exporter over real sockets of this host, with slow clients. The test plays both planes in the segment.
#include "telemetry/exporter.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "controlplane/onc_rpc/poll_thread.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/invariant.h"
#include "dataplane/segment/heartbeat.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::telemetry {
namespace {

class ExporterTest : public ::testing::Test {
 protected:
  ExporterTest() {
    segment::ConfigBlock config;
    config.generation = 1;
    config.reactors = 1;
    segment.layout().config.write(config);
    const std::uint64_t now_ns = segment::monotonic_ns();
    segment::start_heartbeat(segment.layout().control_plane, now_ns, now_ns);
    segment::start_heartbeat(segment.layout().data_plane, now_ns, now_ns);
    segment.layout().reactors[0].info.write({.state = segment::ReactorState::Running});
  }
  FileDescriptor connect(const std::string& text) const {
    FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(exporter.port());
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    return fd;
  }
  /// Returns what the exporter sends until it closes.
  static std::string rest(const FileDescriptor& fd) {
    std::string all;
    char buffer[4096];
    for (ssize_t bytes; (bytes = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
      all.append(buffer, static_cast<std::size_t>(bytes));
    return all;
  }
  std::string ask(const std::string& method, const std::string& path) const {
    return rest(connect(method + ' ' + path + " HTTP/1.1\r\nHost: gateway.example:9464\r\n\r\n"));
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  lab::TestSegment segment{"exporter"};
  PendingKeys pending;
  const std::filesystem::path rdma_devices{testing::TempDir() + "sluice-exporter-" +
                                           std::to_string(::getpid())};
  Exporter exporter{"127.0.0.1:0", segment.layout(), pending, rdma_devices};
  onc_rpc::PollThread thread{"exporter"};
  const onc_rpc::PollThread::Attachment polled{thread, exporter};
};

TEST_F(ExporterTest, metrics_are_in_prometheus_text_format_whatever_the_host_is_called) {
  const std::string answer = ask("GET", "/metrics");
  EXPECT_TRUE(has(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(has(answer, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_TRUE(has(answer, "# TYPE sluice_plane_up gauge\n"));
  EXPECT_TRUE(has(answer, "\nsluice_plane_up{plane=\"data\"} 1\n")) << answer;
}

TEST_F(ExporterTest, failed_invariants_of_the_control_plane_are_counted) {
  const std::string series =
      "\nsluice_invariant_failures_total{reactor=\"control\",invariant=\"timer_state\"} ";
  EXPECT_TRUE(has(ask("GET", "/metrics"), series + "0\n"));
  std::thread([] { count_failure(Invariant::timer_state); }).join();  // as any thread of the process
  std::string answer;
  for (int i = 0; i < 100 && !has(answer, series + "1\n"); ++i) {  // a response is kept for a moment
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    answer = ask("GET", "/metrics");
  }
  EXPECT_TRUE(has(answer, series + "1\n")) << answer;
}

TEST_F(ExporterTest, probes_have_a_status_and_a_sentence) {
  EXPECT_TRUE(has(ask("GET", "/healthz"), "HTTP/1.1 200 OK\r\n"));
  const std::string ready = ask("GET", "/readyz");
  EXPECT_TRUE(has(ready, "HTTP/1.1 200 OK\r\n") && has(ready, "\r\n\r\nready\n")) << ready;
  EXPECT_TRUE(has(ask("GET", "/"), "HTTP/1.1 404 "));
  EXPECT_TRUE(has(ask("GET", "/"), "There are /metrics, /healthz and /readyz."));
}

TEST_F(ExporterTest, a_probe_says_what_is_so_now) {
  EXPECT_TRUE(has(ask("GET", "/readyz"), " 200 "));
  segment.layout().draining = 1;
  EXPECT_TRUE(has(ask("GET", "/readyz"), " 503 "));
  segment.layout().draining = 0;
  EXPECT_TRUE(has(ask("GET", "/readyz"), " 200 "));
}

TEST_F(ExporterTest, a_head_request_has_the_headers_alone) {
  for (const char* const path : {"/metrics", "/healthz", "/readyz"}) {
    const std::string answer = ask("HEAD", path);
    EXPECT_TRUE(has(answer, "HTTP/1.1 200 OK\r\n")) << path << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << path << answer;
    EXPECT_TRUE(has(ask("POST", path), "HTTP/1.1 405 ")) << path;
  }
}

TEST_F(ExporterTest, connections_that_send_half_a_request_keep_no_probe_waiting) {
  std::vector<FileDescriptor> slow;
  for (int i = 0; i < 30; ++i) slow.push_back(connect(i % 2 == 0 ? "GET /metrics HT" : ""));
  for (const char* const path : {"/healthz", "/readyz", "/metrics"})
    EXPECT_TRUE(has(ask("GET", path), "HTTP/1.1 200 OK\r\n")) << path;
  // The exporter has closed no connection.
  for (const FileDescriptor& fd : slow) {
    char byte;
    EXPECT_EQ(::recv(fd.get(), &byte, 1, MSG_DONTWAIT), -1);
  }
}

/// Counters of RDMA ports in a made-up sysfs.
class RdmaPorts : public ExporterTest {
 protected:
  ~RdmaPorts() override { std::filesystem::remove_all(rdma_devices); }
  void poll_verbs(std::initializer_list<const char*> devices) {
    segment::ConfigBlock config;
    config.generation = 2;
    config.reactors = 1;
    config.driver = segment::Driver::Verbs;
    for (const char* const device : devices)
      std::strcpy(config.verbs_ports[config.verbs_port_count++].device, device);
    segment.layout().config.write(config);
  }
  void write(const std::string& device, const std::string& file, const std::string& text) const {
    const auto path = rdma_devices / device / "ports/1" / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
};

TEST_F(RdmaPorts, have_one_meaning_whatever_the_provider_calls_it) {
  poll_verbs({});
  const std::pair<const char*, const char*> kTimeouts[] = {{"mlx5_0", "local_ack_timeout_err"},
                                                           {"bnxt_re0", "to_retransmits"},
                                                           {"irdma0", "RTO"},
                                                           {"mana_0", "requester_timeout"}};
  int value = 7;
  for (const auto& [device, file] : kTimeouts)
    write(device, std::string("hw_counters/") + file, std::to_string(value++));
  write("hns_0", "hw_counters/rx_cnp_pkt", "3");
  write("rxe0", "hw_counters/out_of_seq_request", "5");
  const std::string answer = ask("GET", "/metrics");
  value = 7;
  for (const auto& [device, file] : kTimeouts)
    EXPECT_TRUE(has(answer, "\nsluice_rdma_port_ack_timeouts_total{device=\"" + std::string(device) +
                                "\",port=\"1\"} " + std::to_string(value++) + "\n"))
        << answer;
  EXPECT_TRUE(has(answer, "\nsluice_rdma_port_cnps_received_total{device=\"hns_0\",port=\"1\"} 3\n"));
  EXPECT_TRUE(has(answer, "\nsluice_rdma_port_out_of_sequence_total{device=\"rxe0\",port=\"1\"} 5\n"));
  EXPECT_FALSE(has(answer, "sluice_rdma_port_out_of_sequence_total{device=\"hns_0\""))
      << "a provider without a counter has no series";
}

TEST_F(RdmaPorts, are_those_that_are_configured_and_files_of_one_meaning_are_added) {
  poll_verbs({"irdma0"});
  write("irdma0", "hw_counters/ip4InDiscards", "4");
  write("irdma0", "hw_counters/ip6InDiscards", "6");
  write("irdma0", "counters/port_xmit_discards", "2");
  write("mlx5_0", "hw_counters/out_of_sequence", "9");
  const std::string answer = ask("GET", "/metrics");
  EXPECT_TRUE(has(answer, "\nsluice_rdma_port_receive_discards_total{device=\"irdma0\",port=\"1\"} 10\n"));
  EXPECT_TRUE(has(answer, "\nsluice_rdma_port_transmit_discards_total{device=\"irdma0\",port=\"1\"} 2\n"));
  EXPECT_FALSE(has(answer, "mlx5_0"));
}

TEST_F(RdmaPorts, without_a_number_have_no_series) {
  poll_verbs({"mlx5_0", "mlx5_1"});
  write("mlx5_0", "hw_counters/out_of_sequence", "N/A (not supported)");
  write("mlx5_0", "hw_counters/np_cnp_sent", "");
  const std::string answer = ask("GET", "/metrics");
  EXPECT_TRUE(has(answer, "HTTP/1.1 200 OK\r\n"));
  EXPECT_FALSE(has(answer, "sluice_rdma_port_out_of_sequence_total{"));
  EXPECT_FALSE(has(answer, "sluice_rdma_port_cnps_sent_total{"));
}

TEST_F(RdmaPorts, of_other_drivers_are_not_read) {
  write("mlx5_0", "hw_counters/out_of_sequence", "9");
  EXPECT_FALSE(has(ask("GET", "/metrics"), "mlx5_0"));
}

TEST(RdmaCounters, each_file_has_a_counter_of_the_list_and_each_counter_a_file) {
  for (const RdmaCounterFile& file : kRdmaCounterFiles)
    EXPECT_EQ(std::count_if(std::begin(kRdmaCounters), std::end(kRdmaCounters),
                            [&](const RdmaCounter& counter) { return counter.name == file.counter; }),
              1)
        << file.file;
  for (const RdmaCounter& counter : kRdmaCounters)
    EXPECT_TRUE(std::any_of(std::begin(kRdmaCounterFiles), std::end(kRdmaCounterFiles),
                            [&](const RdmaCounterFile& file) { return counter.name == file.counter; }))
        << counter.name;
}

}  // namespace
}  // namespace sluice::telemetry
