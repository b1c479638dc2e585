// SPDX-License-Identifier: Apache-2.0
//
// Tests of the echo service, called through the transport. They run over the loopback driver, which has a
// connection manager, and over the example driver, which has none.
#include "tests/examples/echo_service/echo_service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "pmd/loopback/loopback.h"
#include "tests/examples/copy_driver/copy_driver.h"
#include "tests/examples/echo_service/echo_pair.h"

namespace sluice::examples {
namespace {

using rpcrdma::CallStatus;

constexpr std::uint32_t kCallHeaderBytes = rpc::kMinCallBytes;

enum class Driver : std::uint8_t { Loopback, Copy };

struct Devices {
  explicit Devices(Driver driver) {
    if (driver == Driver::Loopback) {
      const auto fabric = rdma::loopback::Fabric::in_process({.links = 2});
      client = rdma::loopback::make_device(fabric, {.name = "client"});
      server = rdma::loopback::make_device(fabric, {.name = "server"});
      return;
    }
    auto left = std::make_unique<CopyDevice>("client", std::uint8_t{1});
    auto right = std::make_unique<CopyDevice>("server", std::uint8_t{2});
    CopyDevice::pair(*left, *right);
    client = std::move(left);
    server = std::move(right);
  }
  std::unique_ptr<rdma::Device> client;
  std::unique_ptr<rdma::Device> server;
};

/// One call and what its completion reported.
struct Echoed {
  bool completed = false;
  CallStatus status{};
  std::uint32_t accept_stat = ~0u;
  std::uint32_t count = 0;      ///< count word of the results
  std::vector<std::byte> data;  ///< data that came in the message
  bool placed = false;          ///< the data came by RDMA Write
  rdma::MemoryRegion memory;    ///< first half: arguments, second half: results
};

class Echo : public testing::TestWithParam<Driver> {
 protected:
  static constexpr std::uint32_t kHalf = kMaxEchoBytes + 4096;
  static constexpr std::uint32_t kShortReply = 64;  ///< fits inline

  /// Submits a call whose data is in the message, and offers a Reply chunk if the reply needs one.
  void call(Echoed& echoed, std::uint32_t procedure, std::span<const std::byte> data) {
    std::vector<std::byte> message(kCallHeaderBytes + xdr::kUnit + xdr::padded(data.size()));
    xdr::Writer writer(message);
    write_header(writer, procedure);
    writer.opaque(data);
    submit(echoed, {.payload = message,
                    .max_reply_bytes = static_cast<std::uint32_t>(rpc::kMinReplyBytes + message.size())});
  }
  /// Submits an ECHO of `bytes` bytes as a Read chunk, with `count` as its count word, and a Write chunk for
  /// the result. Offers a Reply chunk too if `max_reply_bytes` do not fit inline.
  void call_by_chunks(Echoed& echoed, std::uint32_t bytes, std::uint32_t count,
                      std::uint32_t max_reply_bytes = kHalf) {
    echoed.memory = devices_.client->allocate_memory(2 * kHalf);
    for (std::size_t i = 0; i < bytes; ++i) echoed.memory.bytes[i] = static_cast<std::byte>(i * 7 + bytes);
    std::vector<std::byte> message(kCallHeaderBytes + xdr::kUnit);
    xdr::Writer writer(message);
    write_header(writer, kEchoProcedure);
    writer.u32(count);
    const rdma::Sge from{echoed.memory.bytes.data(), bytes, echoed.memory.lkey};
    const rdma::Sge to{echoed.memory.bytes.data() + kHalf, bytes, echoed.memory.lkey};
    const rpcrdma::ReadItem read{static_cast<rpcrdma::Position>(message.size()), {&from, 1}};
    const rpcrdma::WriteItem write{{&to, 1}};
    submit(
        echoed,
        {.payload = message, .reads = {&read, 1}, .writes = {&write, 1}, .max_reply_bytes = max_reply_bytes});
  }
  static void write_header(xdr::Writer& writer, std::uint32_t procedure) {
    rpc::encode_call(writer, {.program = kEchoProgram,
                              .version = kEchoVersion,
                              .procedure = procedure,
                              .credential = {},
                              .verifier = {}});
  }
  void submit(Echoed& echoed, rpcrdma::Request request) {
    request.completion = [](void* context, const rpcrdma::Reply& reply) noexcept {
      auto& done = *static_cast<Echoed*>(context);
      done.completed = true;
      done.status = reply.status();
      if (done.status != CallStatus::Ok) return;
      xdr::Reader reader(reply.message());
      for (int word = 0; word < 5; ++word) reader.u32();  // XID, REPLY, MSG_ACCEPTED, verifier
      done.accept_stat = reader.u32();
      if (reader.remaining() == 0) return;
      done.count = reader.u32();
      done.placed = reply.item(0, done.count).where == rpcrdma::ItemResult::Where::Placed;
      const auto data = done.placed ? std::span<const std::byte>{} : reader.opaque_fixed(done.count);
      done.data.assign(data.begin(), data.end());
    };
    request.context = &echoed;
    ASSERT_TRUE(pair_.requester.submit(request));
  }
  void expect_accepted(const Echoed& echoed, rpc::AcceptStat stat) {
    ASSERT_TRUE(echoed.completed);
    ASSERT_EQ(echoed.status, CallStatus::Ok);
    EXPECT_EQ(echoed.accept_stat, static_cast<std::uint32_t>(stat));
    EXPECT_EQ(pair_.service.free_blocks(), kEchoBlocks);
  }

  Devices devices_{GetParam()};
  EchoPair pair_{*devices_.client, *devices_.server};
};

TEST_P(Echo, null_is_answered_and_other_procedures_are_unavailable) {
  Echoed null;
  Echoed other;
  call(null, kNullProcedure, {});
  call(other, kEchoProcedure + 1, {});
  pair_.settle();
  expect_accepted(null, rpc::AcceptStat::Success);
  expect_accepted(other, rpc::AcceptStat::ProcUnavail);
}

TEST_P(Echo, data_in_the_message_is_returned_in_the_reply) {
  for (const std::uint32_t bytes : {0u, 1u, 4u, 900u, 20'000u, kMaxEchoBytes}) {
    std::vector<std::byte> data(bytes);
    for (std::uint32_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 3 + bytes);
    Echoed echoed;
    call(echoed, kEchoProcedure, data);
    pair_.settle();
    expect_accepted(echoed, rpc::AcceptStat::Success);
    EXPECT_EQ(echoed.count, bytes);
    EXPECT_EQ(echoed.data, data);
  }
}

TEST_P(Echo, a_read_chunk_is_returned_by_a_write_chunk) {
  std::uint64_t calls = 0;
  for (const std::uint32_t bytes : {1u, 3u, 4096u, kMaxEchoBytes}) {
    Echoed echoed;
    call_by_chunks(echoed, bytes, bytes, kShortReply);
    pair_.settle();
    expect_accepted(echoed, rpc::AcceptStat::Success);
    EXPECT_EQ(echoed.count, bytes);
    EXPECT_TRUE(echoed.placed);
    const auto memory = echoed.memory.bytes;
    EXPECT_TRUE(std::equal(memory.begin(), memory.begin() + bytes, memory.begin() + kHalf)) << bytes;
    ++calls;
    EXPECT_EQ(pair_.server.counters().rdma_reads, calls);
    EXPECT_EQ(pair_.server.counters().rdma_writes, calls);
  }
}

TEST_P(Echo, a_count_that_contradicts_its_chunk_is_garbage) {
  for (const std::uint32_t count : {0u, 4u, 9u, kMaxEchoBytes + 1, ~0u}) {
    Echoed echoed;
    call_by_chunks(echoed, 8, count);
    pair_.settle();
    expect_accepted(echoed, rpc::AcceptStat::GarbageArgs);
  }
  EXPECT_EQ(pair_.server.counters().rdma_reads, 0u);
}

TEST_P(Echo, calls_beyond_the_blocks_are_copied) {
  std::vector<Echoed> echoed(EchoPair::kCredits);
  for (Echoed& call : echoed) call_by_chunks(call, 5000, 5000);
  pair_.settle();
  for (const Echoed& call : echoed) {
    expect_accepted(call, rpc::AcceptStat::Success);
    EXPECT_EQ(call.count, 5000u);
    const auto sent = call.memory.bytes.first(5000);
    const auto got =
        call.placed ? std::span<const std::byte>(call.memory.bytes).subspan(kHalf, 5000) : call.data;
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.begin(), got.end()));
  }
}

TEST_P(Echo, blocks_are_released_when_the_connection_ends_meanwhile) {
  std::vector<Echoed> echoed(4);
  for (Echoed& call : echoed) call_by_chunks(call, kMaxEchoBytes, kMaxEchoBytes);
  constexpr int kPatience = 1000;
  for (int i = 0; i < kPatience && pair_.service.free_blocks() == kEchoBlocks; ++i) pair_.poll();
  ASSERT_LT(pair_.service.free_blocks(), kEchoBlocks);
  pair_.close();
  EXPECT_EQ(pair_.service.free_blocks(), kEchoBlocks);
}

TEST(EchoBinding, results_are_as_long_as_the_arguments_say) {
  const auto fabric = rdma::loopback::Fabric::in_process({.links = 1});
  const auto device = rdma::loopback::make_device(fabric, {.name = "server"});
  const EchoService service(*device);
  const service::Binding& binding = service.binding();
  std::byte arguments[xdr::kUnit];
  xdr::store_u32(arguments, 5);
  EXPECT_EQ(binding.max_results_bytes(kNullProcedure, {}), 0u);
  EXPECT_EQ(binding.max_results_bytes(kEchoProcedure, std::span(arguments)), 12u);
}

INSTANTIATE_TEST_SUITE_P(Drivers, Echo, testing::Values(Driver::Loopback, Driver::Copy),
                         [](const auto& driver) {
                           return std::string(driver.param == Driver::Loopback ? "loopback" : "copy");
                         });

}  // namespace
}  // namespace sluice::examples
