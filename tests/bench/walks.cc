// SPDX-License-Identifier: Apache-2.0
//
// walks CALL: serves one call on a warm server and prints the address of each function that the server's
// thread enters for it, in order and relative to the program's start. walks.py turns them into figures. The
// program and the libraries are compiled with -finstrument-functions, which calls the first function below at
// each entry.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "dataplane/service/memory/memory_service.h"
#include "tests/bench/gateway.h"
#include "tests/bench/nfs_calls.h"
#include "tests/bench/null_upstream.h"
#include "tests/bench/polled_server.h"

extern "C" const char __executable_start;

namespace {

constexpr std::size_t kMaxEntries = 1u << 20;
std::uintptr_t entries[kMaxEntries];
std::size_t entry_count = 0;
thread_local bool recording = false;

}  // namespace

extern "C" {
__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void* function, void*) {
  if (recording && entry_count < kMaxEntries)
    entries[entry_count++] =
        reinterpret_cast<std::uintptr_t>(function) - reinterpret_cast<std::uintptr_t>(&__executable_start);
}
__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void*, void*) {}
}

namespace sluice::bench {
namespace {

constexpr int kWarmCalls = 100;
constexpr std::uint32_t kWriteBytes = 64u << 10;
constexpr std::chrono::milliseconds kUpstreamAnswers{20};

template <typename Turn>
void recorded(bool wanted, const Turn& turn) {
  recording = wanted;
  turn();
  recording = false;
}

/// A memory export and its client, both polled by this thread.
class MemoryExport {
 public:
  MemoryExport()
      : fabric_(rdma::loopback::Fabric::in_process({.links = 4})),
        server_(fabric_, {}),
        memory_(server_.device().allocate_memory(64u << 20),
                server_.device().allocate_memory(service::memory::kLargeBytes + 64), exports(), &now_ns) {
    server_.engine().add_service(memory_);
    server_.start(&now_ns);
    client_ = std::make_unique<ClientOfThread>(fabric_, ClientConfig{.timeout_s = 600},
                                               &PolledServer::poll_all_of, &server_);
    const auto root = memory_.root_handle(0);
    file_ =
        make_file(root, [this](std::span<const std::byte> call) { return serve({.payload = call}, false); });
    data_ = client_->device().allocate_memory(kWriteBytes);
  }

  void getattr(bool wanted) { serve({.payload = call_message(kGetAttr, file_)}, wanted); }
  /// Makes a WRITE whose data is in a Read chunk.
  void write(bool wanted) {
    CallBuilder call(ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3Write);
    call.arguments().opaque(file_);
    call.arguments().words(0, 0, kWriteBytes, 2, kWriteBytes);
    const rdma::Sge piece{data_.bytes.data(), kWriteBytes, data_.lkey};
    const rpcrdma::ReadItem item{static_cast<rpcrdma::Position>(call.message().size()), {&piece, 1}};
    serve({.payload = call.message(), .reads = {&item, 1}}, wanted);
  }

 private:
  struct Wait {
    bool done = false;
    Bytes reply;
  };

  static service::memory::MemoryServiceConfig exports() {
    service::memory::MemoryServiceConfig config{.max_files = 100, .handle_key = {}, .exports = {}};
    config.exports = {{.path = "/", .root_squash = false, .allowed = {}}};
    return config;
  }
  Bytes serve(rpcrdma::Request request, bool wanted) {
    Wait wait;
    request.max_reply_bytes = 1024;
    request.context = &wait;
    request.completion = [](void* context, const rpcrdma::Reply& reply) noexcept {
      auto& waiting = *static_cast<Wait*>(context);
      if (reply.status() == rpcrdma::CallStatus::Ok)
        waiting.reply = {reply.message().begin(), reply.message().end()};
      waiting.done = true;
    };
    if (!client_->client().sessions()[0].requester->submit(request)) std::abort();
    while (!wait.done) {
      client_->client().poll();
      recorded(wanted, [this] { server_.poll(); });
    }
    expect_success(wait.reply);
    return wait.reply;
  }

  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  PolledServer server_;
  service::memory::MemoryService memory_;
  std::unique_ptr<ClientOfThread> client_;
  rdma::MemoryRegion data_;
  Bytes file_;
};

void walk(const std::function<void(bool wanted)>& call) {
  for (int i = 0; i < kWarmCalls; ++i) call(false);
  call(true);
}

/// Runs the walk of this name. Returns false if there is none.
bool walk_named(std::string_view name) {
  if (name == "getattr" || name == "write") {
    MemoryExport server;
    walk([&](bool wanted) { name == "write" ? server.write(wanted) : server.getattr(wanted); });
    return true;
  }
  if (name != "forwarded_getattr") return false;
  NullUpstream upstream;
  Gateway gateway(upstream.port(), {});
  walk([&](bool wanted) {
    gateway.call_once({ulb::kNfs3GetAttr}, [wanted](const auto& turn) {
      // Idle iterations while the upstream has the call would be counted as entries.
      if (wanted) std::this_thread::sleep_for(kUpstreamAnswers);
      recorded(wanted, turn);
    });
  });
  return true;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  if (argc != 2 || !sluice::bench::walk_named(argv[1])) {
    std::fprintf(stderr, "usage: walks getattr|write|forwarded_getattr\n");
    return 2;
  }
  for (std::size_t i = 0; i < entry_count; ++i) std::printf("0x%zx\n", static_cast<std::size_t>(entries[i]));
  return 0;
}
