// SPDX-License-Identifier: Apache-2.0
//
// The protocol of librdmacm's rping over softroce, as server and as client. Tests our RDMA Reads, Writes and
// Sends against the kernel's verbs without RPC in between.
//
// In each round the client sends the address of a source buffer, and the server reads it by RDMA and
// confirms. Then the client sends the address of a sink, and the server writes the same bytes there and
// confirms.
//
//  rping_peer server|client ETHDEV ADDRESS/BITS PEER-ADDRESS PORT ROUNDS BYTES
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/bench/client.h"
#include "cli/bench/device.h"
#include "dataplane/xdr/cursor.h"
#include "tests/interop/until.h"

namespace sluice::interop {
namespace {

constexpr std::size_t kInfoBytes = 16;  // address, rkey, length
constexpr std::size_t kMaxBytes = 1 << 20;

struct Info {
  std::uint64_t address;
  std::uint32_t rkey;
  std::uint32_t bytes;
};

class Peer {
 public:
  Peer(bench::ToolDevice& tool, std::uint32_t bytes)
      : device_(*tool.device),
        manager_(tool.manager()),
        bytes_(bytes),
        messages_(device_.allocate_memory(4 * kInfoBytes)),
        data_(device_.allocate_memory(2 * kMaxBytes)),
        windows_{device_.allocate_window(), device_.allocate_window()} {}

  void serve(std::uint16_t port, int rounds) {
    manager_.listen(port);
    std::printf("listening\n");
    std::fflush(stdout);
    await_event(rdma::CmEventType::ConnectRequest);
    make_queue_pair();
    if (!manager_.accept(id_, *qp_, {})) throw std::runtime_error("accept failed");
    for (int round = 0; round < rounds; ++round) {
      const Info source = await_message();
      transfer(rdma::SendOpcode::RdmaRead, source);
      say({});
      const Info sink = await_message();
      transfer(rdma::SendOpcode::RdmaWrite, sink);
      say({});
    }
    await_event(rdma::CmEventType::Disconnected);
  }

  void call(std::uint16_t port, int rounds) {
    make_queue_pair();
    const auto id = manager_.connect(*qp_, port, {});
    if (!id) throw std::runtime_error("connect failed");
    id_ = *id;
    await_event(rdma::CmEventType::Established);
    std::byte* source = data_.bytes.data();
    std::byte* sink = source + kMaxBytes;
    for (int round = 0; round < rounds; ++round) {
      for (std::uint32_t i = 0; i < bytes_; ++i) source[i] = static_cast<std::byte>(33 + (i + round) % 90);
      source[bytes_ - 1] = std::byte{0};  // rping prints it as a string
      std::memset(sink, 0, bytes_);
      say(expose(0, source, rdma::kRemoteRead));
      await_message();
      say(expose(1, sink, rdma::kRemoteWrite));
      await_message();
      if (std::memcmp(source, sink, bytes_) != 0) throw std::runtime_error("what came back differs");
    }
    ended_ = true;  // outstanding work is flushed from here on
    manager_.disconnect(id_);
    await_event(rdma::CmEventType::Disconnected);
  }

 private:
  void make_queue_pair() {
    qp_ = device_.create_queue_pair({});
    for (std::uint64_t i = 0; i < 2; ++i) post_receive(i);
  }
  void post_receive(std::uint64_t slot) {
    const rdma::RecvWr wr{slot, {messages_.bytes.data() + slot * kInfoBytes, kInfoBytes, messages_.lkey}};
    if (qp_->post_recv({&wr, 1}) != 1) throw std::runtime_error("post_recv failed");
  }
  void turn() {
    rdma::WorkCompletion wcs[8];
    const std::size_t count = device_.poll(wcs);
    for (const rdma::WorkCompletion& wc : std::span(wcs, count)) {
      if (wc.status != rdma::WcStatus::Success) {
        if (!ended_) throw std::runtime_error(std::string("work completion: ") + rdma::to_string(wc.status));
        continue;
      }
      if (wc.opcode == rdma::WcOpcode::Receive) {
        const std::byte* at = messages_.bytes.data() + wc.wr_id * kInfoBytes;
        received_.push_back({xdr::load_u64(at), xdr::load_u32(at + 8), xdr::load_u32(at + 12)});
        post_receive(wc.wr_id);
      } else {
        ++completed_;
      }
    }
    rdma::CmEvent events[4];
    const std::size_t event_count = manager_.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events, event_count)) {
      if (event.type == rdma::CmEventType::ConnectRequest) id_ = event.id;
      if (event.type == rdma::CmEventType::Disconnected || event.type == rdma::CmEventType::Rejected)
        ended_ = true;
      seen_[static_cast<std::size_t>(event.type)] = true;
    }
  }
  template <typename Condition>
  void until(const char* what, Condition condition) {
    interop::until(
        what, [this] { turn(); }, condition);
  }
  void await_event(rdma::CmEventType type) {
    until("connection management", [&] { return seen_[static_cast<std::size_t>(type)]; });
  }
  Info await_message() {
    until("a message", [&] { return !received_.empty(); });
    const Info info = received_.front();
    received_.erase(received_.begin());
    return info;
  }
  void post(const rdma::SendWr& wr) {
    const std::uint64_t before = completed_;
    if (qp_->post_send({&wr, 1}) != 1) throw std::runtime_error("post_send failed");
    until("a work completion", [&] { return completed_ > before; });
  }
  void say(const Info& info) {
    std::byte* at = messages_.bytes.data() + 2 * kInfoBytes;
    xdr::store_u64(at, info.address);
    xdr::store_u32(at + 8, info.rkey);
    xdr::store_u32(at + 12, info.bytes);
    const rdma::Sge sge{at, kInfoBytes, messages_.lkey};
    post({.wr_id = 10, .sges = {&sge, 1}, .opcode = rdma::SendOpcode::Send});
  }
  void transfer(rdma::SendOpcode opcode, const Info& remote) {
    if (remote.bytes > kMaxBytes) throw std::runtime_error("more than there is room for");
    const rdma::Sge sge{data_.bytes.data(), remote.bytes, data_.lkey};
    post({.wr_id = 11,
          .sges = {&sge, 1},
          .remote_address = remote.address,
          .rkey = static_cast<rdma::Rkey>(remote.rkey),
          .opcode = opcode});
  }
  Info expose(std::size_t which, std::byte* memory, rdma::AccessFlags access) {
    if (rkeys_[which] != rdma::Rkey{})
      post({.wr_id = 12, .sges = {}, .rkey = rkeys_[which], .opcode = rdma::SendOpcode::LocalInvalidate});
    const auto rkey = qp_->bind_window(windows_[which], {memory, bytes_}, data_.lkey, access);
    if (!rkey) throw std::runtime_error("bind failed");
    rkeys_[which] = *rkey;
    return {reinterpret_cast<std::uintptr_t>(memory), static_cast<std::uint32_t>(*rkey), bytes_};
  }

  rdma::Device& device_;
  rdma::ConnectionManager& manager_;
  const std::uint32_t bytes_;
  rdma::MemoryRegion messages_;
  rdma::MemoryRegion data_;
  rdma::MemoryWindow windows_[2];
  rdma::Rkey rkeys_[2]{};
  Owned<rdma::QueuePair> qp_;
  rdma::CmId id_{};
  bool seen_[4]{};
  bool ended_ = false;
  std::uint64_t completed_ = 0;
  std::vector<Info> received_;
};

}  // namespace
}  // namespace sluice::interop

int main(int argc, char** argv) {
  if (argc != 8)
    return std::fprintf(stderr,
                        "usage: rping_peer server|client ETHDEV ADDRESS/BITS PEER PORT ROUNDS BYTES\n"),
           2;
  try {
    sluice::bench::DeviceOptions options;
    options.driver = "softroce";
    options.ethdev = argv[2];
    options.address = argv[3];
    options.server = argv[4];
    sluice::bench::ToolDevice tool = sluice::bench::open_device(options);
    sluice::interop::Peer peer(tool, static_cast<std::uint32_t>(std::atoi(argv[7])));
    const auto port = static_cast<std::uint16_t>(std::atoi(argv[5]));
    if (std::string(argv[1]) == "server")
      peer.serve(port, std::atoi(argv[6]));
    else
      peer.call(port, std::atoi(argv[6]));
    std::printf("%s rounds of %s bytes\n", argv[6], argv[7]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rping_peer: %s\n", error.what());
    return 1;
  }
}
