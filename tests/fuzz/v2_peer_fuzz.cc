// SPDX-License-Identifier: Apache-2.0
//
// Runs both ends of version 2 over loopback: a sequence of messages, each preceded by its length in two
// bytes, comes from a hostile client, or from a hostile server to a client with calls outstanding.
#include <cstdlib>
#include <memory>

#include "tests/conformance/v2_lab.h"

using namespace sluice;
using namespace sluice::conformance;

namespace {

constexpr std::size_t kMessages = 12;
/// A lab remembers what each connection and each call used, so it is replaced from time to time.
constexpr int kRunsOfALab = 2000;
constexpr int kConnectionsOfALab = 8;
int runs = 0;
int connections = 0;

template <typename Lab>
void replace_when_worn(std::unique_ptr<Lab>& lab) {
  if (++runs < kRunsOfALab && connections < kConnectionsOfALab) return;
  runs = connections = 0;
  lab.reset();
}

template <typename Lab, typename Patch>
void run(Lab& lab, const std::uint8_t* data, std::size_t size, Patch&& patch) {
  for (std::size_t n = 0; size >= 2 && n < kMessages; ++n) {
    const std::size_t length = std::min<std::size_t>(size - 2, (data[0] | data[1] << 8) & 1023);
    Bytes message(reinterpret_cast<const std::byte*>(data) + 2,
                  reinterpret_cast<const std::byte*>(data) + 2 + length);
    patch(message, n);
    lab.peer->send(message);
    data += 2 + length;
    size -= 2 + length;
  }
  lab.settle(60);
  lab.service->complete_later();
  lab.settle(60);
  lab.peer->inbox.clear();
  lab.peer->send_completions.clear();
  lab.service->executed.clear();
  lab.log.clear();
}

void to_server(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<v2::Server> lab;
  replace_when_worn(lab);
  if (!lab) {
    lab = std::make_unique<v2::Server>();
    lab->hello();
  }
  if (!lab->connection->is_open() || lab->peer->failed) {
    ++connections;
    lab->reconnect();
    lab->hello();
  }
  run(*lab, data, size, [](Bytes&, std::size_t) {});
  // After the progress timeout no memory is held for an incomplete message.
  lab->pass(60'000'000'000);
  if (!lab->connection->is_open()) {
    ++connections;
    lab->reconnect();
    lab->hello();
  }
  if (lab->engine->assembly_memory().available() != lab->engine->assembly_memory().buffers()) std::abort();
}

void to_client(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<v2::Client> lab;
  static rdma::MemoryRegion memory;
  replace_when_worn(lab);
  if (!lab) {
    LabOptions options = v2::Client::defaults();
    options.connection.credit_grant = 8;
    options.connection.version2.parameters.reverse = rpcrdma::v2::ReverseSupport::General;
    lab = std::make_unique<v2::Client>(options);
    memory = lab->device->allocate_memory(65536);
    lab->confirm();
  }
  if (!lab->connection->is_open() || lab->peer->failed || lab->connection->version() != 2) {
    ++connections;
    lab->disconnect();
    lab->now_ns += lab->options.connection.version2.version_1_memory_ns + 1;
    lab->settle();
    lab->connect();
    lab->confirm();
  }
  std::uint32_t xids[4] = {};
  const rdma::Sge piece{memory.bytes.data(), 4096, memory.lkey};
  const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
  for (std::size_t i = 0; i < 4; ++i) {
    rpcrdma::Request request{.payload = {}, .max_reply_bytes = i % 2 == 0 ? 64u : 40000u};
    const Bytes payload = test_call(0, TestService::kSource, {16});
    request.payload = payload;
    request.repeatable = i > 1;
    if (i == 1) request.writes = {&item, 1};
    xids[i] = lab->submit(request, {16}).value_or(0);
  }
  lab->settle(8);
  // Messages mostly get the XID of an outstanding call.
  run(*lab, data, size, [&xids](Bytes& message, std::size_t) {
    if (message.size() < 24 || message[0] > std::byte{3}) return;
    const std::uint32_t xid = xids[static_cast<std::size_t>(message[0])];
    xdr::store_u32(message.data(), xid);
    if (message.size() >= 40 && word_at(message, 9) < 4) xdr::store_u32(message.data() + 36, xid);
  });
  if (lab->finished.size() > 10000) lab->finished.clear();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  if (data[0] % 2 == 0)
    to_server(data + 1, size - 1);
  else
    to_client(data + 1, size - 1);
  return 0;
}
