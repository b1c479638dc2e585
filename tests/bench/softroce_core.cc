// SPDX-License-Identifier: Apache-2.0
//
// softroce with both ends and a wire between them on one core, measured by the processor time of their
// thread. A call is a Send; its answer is an RDMA Write of the data that a READ requests, or an RDMA Read of
// the data of a WRITE, and a Send. The comparison is bare packets of the same sizes on the same wire. The
// result is the cost of a packet independently of other programs; instructions.py counts it in instructions.
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <array>
#include <stdexcept>

#include "cli/bench/client.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"
#include "tests/bench/worker.h"
#include "tests/driver/softroce_pair.h"

namespace sluice::bench {
namespace {

using namespace rdma;

constexpr std::uint32_t kBufferBytes = 256;
constexpr std::uint32_t kBuffers = 256;

struct Shape {
  std::uint32_t outstanding = 64;
  std::uint32_t call_bytes =
      68;  ///< headers of version 1 without chunks (RFC 8166), a call with AUTH_NONE (RFC 5531)
  std::uint32_t reply_bytes = 52;
  std::uint32_t data_bytes = 0;
  SendOpcode data = SendOpcode::RdmaWrite;  ///< how the server moves the data
};

struct End {
  explicit End(softroce::SoftRoce& of)
      : device(of),
        qp(of.create_queue_pair({.send_depth = 512, .recv_depth = 512})),
        buffers(of.allocate_memory(kBuffers * kBufferBytes)) {
    for (std::uint64_t i = 0; i < kBuffers; ++i) repost(i);
  }
  Sge buffer(std::uint64_t number, std::uint32_t bytes) const {
    return {buffers.bytes.data() + number * kBufferBytes, bytes, buffers.lkey};
  }
  void repost(std::uint64_t number) {
    const RecvWr wr{number, buffer(number, kBufferBytes)};
    if (qp->post_recv({&wr, 1}) != 1) throw std::runtime_error("The receive queue is full.");
  }

  softroce::SoftRoce& device;
  Owned<QueuePair> qp;
  MemoryRegion buffers;
};

class Core {
 public:
  Core() : client_(pair_.left()), server_(pair_.right()) {
    connect(client_, server_, pair_.link_of_right(), 100, 200);
    connect(server_, client_, pair_.link_of_left(), 200, 100);
    const auto key =
        client_.qp->bind_window(client_.device.allocate_window(), placed_.bytes, placed_.lkey, kRemoteWrite);
    if (!key) throw std::runtime_error("The window cannot be bound.");
    key_ = *key;
    const auto readable =
        client_.qp->bind_window(client_.device.allocate_window(), placed_.bytes, placed_.lkey, kRemoteRead);
    if (!readable) throw std::runtime_error("The window cannot be bound.");
    readable_ = *readable;
  }

  double calls_per_second(const Shape& shape, double seconds) {
    const std::uint32_t calls = shape.data_bytes > kCallsOfMoreBytes ? 64 : kCalls;
    return rate(seconds, calls, [&] { answer(shape, calls); });
  }
  double packet_exchanges_per_second(const Shape& shape, double seconds) {
    return rate(seconds, kCalls, [&] { exchange_packets(shape, kCalls); });
  }

 private:
  static constexpr std::uint32_t kCalls = 10'000;
  static constexpr std::uint32_t kMostData = 1u << 20;
  static constexpr std::uint32_t kCallsOfMoreBytes = 64u << 10;
  static constexpr std::uint16_t kBurst = 64;
  static constexpr std::uint32_t kHeaderBytes = rdma::softroce::kEthernetBytes + rdma::softroce::kIpv4Bytes +
                                                rdma::softroce::kUdpBytes + rdma::softroce::kBthBytes +
                                                rdma::softroce::kIcrcBytes;

  static void connect(End& from, End& to, const LinkAddress& link, std::uint32_t send_psn,
                      std::uint32_t receive_psn) {
    RcAttributes attributes;
    attributes.local = from.device.addresses()[0];
    attributes.remote = to.device.addresses()[0];
    attributes.remote_link = link;
    attributes.remote_qp = to.qp->number();
    attributes.send_psn = send_psn;
    attributes.receive_psn = receive_psn;
    attributes.path_mtu = from.device.max_path_mtu();
    if (!from.qp->connect(attributes)) throw std::runtime_error("The queue pair cannot be connected.");
  }

  template <typename Calls>
  static double rate(double seconds, std::uint32_t calls, const Calls& make_calls) {
    const std::uint64_t begun_ns = thread_ns();
    std::uint64_t done = 0;
    do {
      make_calls();
      done += calls;
    } while (static_cast<double>(thread_ns() - begun_ns) < seconds * 1e9);
    return static_cast<double>(done) * 1e9 / static_cast<double>(thread_ns() - begun_ns);
  }

  [[gnu::noinline]] void answer(const Shape& shape, std::uint32_t calls) {
    std::uint32_t sent = std::min(shape.outstanding, calls);
    post(client_, sent, shape.call_bytes, 0);
    for (std::uint32_t answered = 0; answered < calls;) {
      pair_.carry();
      const Arrived at_server = arrived(server_);
      if (shape.data == SendOpcode::RdmaRead) {
        post_reads(at_server.messages, shape.data_bytes);
        post(server_, at_server.reads, shape.reply_bytes, 0);
      } else {
        post(server_, at_server.messages, shape.reply_bytes, shape.data_bytes);
      }
      const std::uint32_t now = arrived(client_).messages;
      answered += now;
      const std::uint32_t more = std::min(now, calls - sent);
      post(client_, more, shape.call_bytes, 0);
      sent += more;
    }
  }
  struct Arrived {
    std::uint32_t messages = 0;
    std::uint32_t reads = 0;  ///< RDMA Reads that are complete
  };
  /// Polls an end, and returns what has arrived since the last call.
  static Arrived arrived(End& end) {
    std::array<WorkCompletion, kBurst> completions;
    Arrived result;
    for (const WorkCompletion& each : std::span(completions).first(end.device.poll(completions))) {
      if (each.status != WcStatus::Success) throw std::runtime_error("The connection was lost.");
      result.reads += each.opcode == WcOpcode::RdmaRead;
      if (each.opcode != WcOpcode::Receive) continue;
      end.repost(each.wr_id);
      ++result.messages;
    }
    return result;
  }
  void exchange_packets(const Shape& shape, std::uint32_t exchanges) {
    std::array<rte_mbuf*, kBurst> packets;
    const auto send = [&](std::uint16_t port, std::uint16_t count, std::uint32_t message_bytes) {
      for (rte_mbuf* packet : std::span(packets).first(count))
        packet->data_len = static_cast<std::uint16_t>(packet->pkt_len = kHeaderBytes + message_bytes);
      if (rte_eth_tx_burst(port, 0, packets.data(), count) != count)
        throw std::runtime_error("The wire is full.");
      pair_.carry();
    };
    const auto receive = [&](std::uint16_t port) {
      return rte_eth_rx_burst(port, 0, packets.data(), kBurst);
    };
    for (std::uint32_t done = 0; done < exchanges; done += kBurst) {
      if (rte_pktmbuf_alloc_bulk(pool_, packets.data(), kBurst) != 0) throw std::runtime_error("No buffers.");
      send(pair_.wire().left(), kBurst, shape.call_bytes);
      send(pair_.wire().right(), receive(pair_.wire().right()), shape.reply_bytes);
      if (receive(pair_.wire().left()) != kBurst) throw std::runtime_error("Packets were lost.");
      rte_pktmbuf_free_bulk(packets.data(), kBurst);
    }
  }
  void post_reads(std::uint32_t reads, std::uint32_t bytes) {
    const Sge data{data_.bytes.data(), bytes, data_.lkey};
    for (std::uint32_t i = 0; i < reads; ++i)
      wrs_[i] = {.sges = {&data, 1},
                 .remote_address = reinterpret_cast<std::uintptr_t>(placed_.bytes.data()),
                 .rkey = readable_,
                 .opcode = SendOpcode::RdmaRead};
    if (server_.qp->post_send({wrs_.data(), reads}) != reads)
      throw std::runtime_error("The send queue is full.");
  }
  void post(End& end, std::uint32_t messages, std::uint32_t bytes, std::uint32_t data_bytes) {
    if (messages == 0) return;
    const Sge message = end.buffer(0, bytes);
    const Sge data{data_.bytes.data(), data_bytes, data_.lkey};
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < messages; ++i) {
      if (data_bytes > 0)
        wrs_[count++] = {.sges = {&data, 1},
                         .remote_address = reinterpret_cast<std::uintptr_t>(placed_.bytes.data()),
                         .rkey = key_,
                         .opcode = SendOpcode::RdmaWrite};
      wrs_[count++] = {.sges = {&message, 1}};
    }
    if (end.qp->post_send({wrs_.data(), count}) != count) throw std::runtime_error("The send queue is full.");
  }

  conformance::SoftRocePair pair_{{}};
  End client_;
  End server_;
  MemoryRegion placed_ = client_.device.allocate_memory(kMostData);
  MemoryRegion data_ = server_.device.allocate_memory(kMostData);
  Rkey key_{};
  Rkey readable_{};
  rte_mempool* pool_ = rte_pktmbuf_pool_create("packets", 1023, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
  std::array<SendWr, 2 * kBurst> wrs_;
};

Core& core() {
  static Core core;
  return core;
}
template <Shape kShape>
double calls(double seconds) {
  pin(kServerCpu);
  return core().calls_per_second(kShape, seconds);
}

constexpr Side kSides[] = {
    {"packets",
     [](double seconds) {
       pin(kServerCpu);
       return core().packet_exchanges_per_second(Shape{}, seconds);
     }},
    {"null", calls<Shape{}>},
    {"getattr", calls<Shape{.call_bytes = 132, .reply_bytes = 140}>},
    {"read4k", calls<Shape{.call_bytes = 148, .reply_bytes = 184, .data_bytes = 4096}>},
    {"write4k",
     calls<Shape{.call_bytes = 176, .reply_bytes = 160, .data_bytes = 4096, .data = SendOpcode::RdmaRead}>},
    {"read1m", calls<Shape{.outstanding = 8, .call_bytes = 148, .reply_bytes = 184, .data_bytes = 1u << 20}>},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
