// SPDX-License-Identifier: Apache-2.0
//
// rdma_saturate ETHDEV MOUNT_PORT PID: keeps a data plane on softroce busy with as many outstanding calls as
// it grants, and prints the processor time that process PID spends on a call. A reactor polls continuously,
// so this is the wall time of its processor, less the time of other processes, divided by the number of
// calls.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/bench/device.h"
#include "cli/bench/mount_client.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/wire/v1.h"
#include "pmd/softroce/softroce.h"
#include "tests/bench/nfs_calls.h"
#include "tests/bench/roce_requester.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint16_t kPort = 20049;
constexpr std::uint32_t kCreditsRequested = 128;

struct Server {
  pid_t pid = 0;
  Bytes file;
  RoceRequester* requester = nullptr;
} server;

/// A call in the form of its Send. The server writes the data of a READ to the chunk, which this program does
/// not look at, and reads the data of a WRITE from the chunk.
struct Message {
  explicit Message(const CallShape& shape) : shape_(shape) {
    const rpcrdma::Segment segment{static_cast<rdma::Rkey>(1), shape.read_bytes, 0};
    const std::span<const rpcrdma::Segment> chunk{&segment, 1};
    rpcrdma::CallChunks chunks;
    if (shape.read_bytes > 0) chunks.writes = {&chunk, 1};
    const Bytes call = call_message(shape, server.file);
    const rpcrdma::ReadSegment data{static_cast<rpcrdma::Position>(call.size()),
                                    {static_cast<rdma::Rkey>(1), shape.write_bytes, 0}};
    if (shape.write_bytes > 0) chunks.reads = {&data, 1};
    bytes_.resize(rpcrdma::v1::header_bytes(chunks) + call.size());
    xdr::Writer writer(bytes_);
    rpcrdma::v1::encode_call(writer, {}, static_cast<rpcrdma::Credits>(kCreditsRequested),
                             rpcrdma::v1::Procedure::Msg, chunks);
    header_bytes_ = writer.position();
    std::copy(call.begin(), call.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(header_bytes_));
  }
  std::span<const std::byte> numbered(std::uint32_t number) {
    xdr::store_u32(bytes_.data(), number);
    renumber(std::span(bytes_).subspan(header_bytes_), shape_, number);
    return bytes_;
  }

 private:
  const CallShape shape_;
  Bytes bytes_;
  std::size_t header_bytes_ = 0;
};

class Calls {
 public:
  explicit Calls(const CallShape& shape) : shape_(shape), message_(shape) {
    submit();
    while (answered_ == 0) turn();
    expect_moved();
  }

  /// Returns nanoseconds of processor time per call, measured for `seconds` with all granted credits in use.
  double per_call(double seconds, const ProcessorTime& used) {
    const std::uint32_t answered_before = answered_;
    const double used_before = used.ns();
    const std::uint64_t begin = now_ns();
    std::uint64_t now = begin;
    for (std::uint32_t turns = 0; static_cast<double>(now - begin) < seconds * 1e9; ++turns) {
      while (submitted_ - answered_ < granted_) submit();
      turn();
      if (turns % 64 == 0) now = now_ns();
    }
    const double ns = (used.ns() - used_before) / (answered_ - answered_before);
    while (answered_ < submitted_) turn();
    turn();  // acknowledges the last replies
    expect_moved();
    return ns;
  }

 private:
  void submit() { server.requester->send(message_.numbered(++submitted_)); }

  void turn() {
    const auto arrived = server.requester->turn([this](std::span<const std::byte> reply) {
      granted_ = std::min(kCreditsRequested, xdr::load_u32(&reply[8]));
      if (++answered_ == 1) expect_good(reply);
    });
    written_ += arrived.written_bytes;
    read_ += arrived.read_bytes;
    if (arrived.messages + arrived.written_bytes + arrived.read_bytes > 0) {
      last_arrival_ns_ = 0;
      return;
    }
    if (++idle_turns_ % 1'000'000 != 0) return;
    if (last_arrival_ns_ == 0) last_arrival_ns_ = now_ns();
    if (now_ns() - last_arrival_ns_ > 5'000'000'000) throw std::runtime_error("The server does not answer.");
  }

  /// Throws unless the server has moved the data of exactly the answered calls.
  void expect_moved() const {
    if (written_ != std::uint64_t{answered_} * shape_.read_bytes)
      throw std::runtime_error("The server has not written what was read.");
    if (read_ != std::uint64_t{answered_} * shape_.write_bytes)
      throw std::runtime_error("The server has not read what it should write.");
  }

  void expect_good(std::span<const std::byte> reply) const {
    const auto decoded = rpcrdma::v1::decode(reply);
    if (decoded.status != rpcrdma::v1::Decode::Ok || decoded.header.procedure != rpcrdma::v1::Procedure::Msg)
      throw std::runtime_error("The server answers with an error of the transport.");
    expect_done(reply.subspan(decoded.header.header_bytes), shape_);
  }

  const CallShape shape_;
  Message message_;
  std::uint32_t submitted_ = 0;
  std::uint32_t answered_ = 0;
  std::uint32_t granted_ = 1;
  std::uint64_t written_ = 0;  ///< bytes that the server wrote by RDMA
  std::uint64_t read_ = 0;     ///< bytes that it read
  std::uint64_t idle_turns_ = 0;
  std::uint64_t last_arrival_ns_ = 0;
};

template <const CallShape& kShape>
double server_ns_per_call(double seconds) {
  return Calls(kShape).per_call(seconds, ProcessorTime(server.pid));
}

constexpr Side kSides[] = {
    {"null", server_ns_per_call<kNull>},       {"getattr", server_ns_per_call<kGetAttr>},
    {"read4k", server_ns_per_call<kRead4k>},   {"read1m", server_ns_per_call<kRead1m>},
    {"write4k", server_ns_per_call<kWrite4k>}, {"write1m", server_ns_per_call<kWrite1m>},
};

Bytes make_file_over_rdma(ToolDevice& device, const Bytes& root) {
  Client client(*device.device, device.manager(), {.port = kPort, .depth = 1});
  return make_file(root, [&](std::span<const std::byte> call) {
    return client.call({.payload = call, .max_reply_bytes = 512}).message;
  });
}

void connect(ToolDevice& device, AgreedQueuePair& agreed) {
  device.manager().connect(agreed, kPort,
                           rpcrdma::encode_private_data(
                               {.remote_invalidation = false, .send_bytes = 4096, .receive_bytes = 4096}));
  rdma::WorkCompletion none[16];
  rdma::CmEvent event;
  const std::uint64_t begin = now_ns();
  while (device.manager().poll_events({&event, 1}) == 0 || event.type != rdma::CmEventType::Established) {
    device.device->poll(none);
    if (now_ns() - begin > 10'000'000'000) throw std::runtime_error("The server does not connect.");
  }
  for (int i = 0; i < 1000; ++i)
    device.device->poll(none);  // sends the last message of connection management
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice;
  using namespace sluice::bench;
  if (argc != 4) return std::fprintf(stderr, "rdma_saturate ETHDEV MOUNT_PORT PID\n"), 2;
  try {
    DeviceOptions options;
    options.driver = "softroce";
    options.ethdev = argv[1];
    options.address = "192.0.2.2/24";
    options.server = "192.0.2.1";
    options.cpu = kClientCpu;
    ToolDevice device = open_device(options);
    server.pid = std::atoi(argv[3]);
    server.file = make_file_over_rdma(
        device, mount_root("127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[2])), "/export"));
    const auto number = device.device->create_queue_pair({});
    AgreedQueuePair agreed(number->number());
    connect(device, agreed);
    const auto& port = *device.port;
    RoceRequester requester(port.config().ethdev, agreed, port.link_address());
    server.requester = &requester;
    return serve(kSides);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
