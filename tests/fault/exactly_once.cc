// SPDX-License-Identifier: Apache-2.0
//
//  exactly_once [--device ...] --mount-port PORT
//
// Creates files, writes them, reads them back, compares, renames and removes them. Every name is used only
// once, so an operation that is executed twice, or not at all, is detected: each file is created with GUARDED
// and has to exist when it is renamed and removed. The program leaves no file behind and prints JSON.
//
// Exit status: 0: everything was correct; 1: an error was found; 3: the connection was lost, without an error
// before.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <thread>

#include "cli/arguments.h"
#include "cli/bench/client.h"
#include "cli/bench/device.h"
#include "cli/bench/mount_client.h"
#include "cli/interrupt.h"
#include "controlplane/json/json.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kLargestBytes = 64u << 10;
constexpr std::uint32_t kGuarded = 1, kFileSync = 2;
constexpr std::uint64_t kPatienceNs = 60'000'000'000;

using Handle = std::vector<std::byte>;

struct Options {
  DeviceOptions device;
  ClientConfig client{.connections = 2, .depth = 4, .timeout_s = 60};
  std::uint16_t mount_port = 0;
  std::uint32_t seed = 1;
  double seconds = 10;
};

struct Counts {
  std::uint64_t operations = 0;
  std::uint64_t files = 0;
  std::uint64_t bytes_compared = 0;
  std::uint64_t errors = 0;
};

std::byte content(std::uint64_t file, std::size_t at) {
  return static_cast<std::byte>((file * 131 + at * 37 + (at >> 8)) & 0xFF);
}

/// Handles one file after another, with one call outstanding.
class Worker {
 public:
  enum class Step : std::uint8_t { Create, Write, Read, Rename, Remove };

  Worker(Client& client, Session& session, const Handle& root, std::string name, rdma::MemoryRegion memory,
         Counts& counts)
      : client_(client),
        session_(session),
        root_(root),
        name_(std::move(name)),
        memory_(memory),
        counts_(counts) {}

  bool idle() const { return !outstanding_; }
  /// True between two files.
  bool at_rest() const { return idle() && step_ == Step::Create; }
  bool failed() const { return failed_; }
  bool stuck(std::uint64_t now) const { return outstanding_ && now > since_ns_ + kPatienceNs; }

  void go_on() {
    const std::uint32_t procedures[] = {ulb::kNfs3Create, ulb::kNfs3Write, ulb::kNfs3Read, ulb::kNfs3Rename,
                                        ulb::kNfs3Remove};
    CallBuilder call(ulb::kNfsProgram, ulb::kNfs3Version, procedures[static_cast<std::size_t>(step_)]);
    build(call.arguments());
    const rdma::Sge piece{memory_.bytes.data(), bytes(), memory_.lkey};
    const rpcrdma::ReadItem argument{static_cast<rpcrdma::Position>(call.message().size()), {&piece, 1}};
    const rpcrdma::WriteItem result{{&piece, 1}};
    rpcrdma::Request request{.payload = call.message(), .max_reply_bytes = 512, .context = this};
    if (step_ == Step::Write) request.reads = {&argument, 1};
    if (step_ == Step::Read) request.writes = {&result, 1};
    request.completion = [](void* context, const rpcrdma::Reply& reply) noexcept {
      static_cast<Worker*>(context)->finish(reply);
    };
    outstanding_ = session_.requester->submit(request).has_value();
    since_ns_ = client_.now();
  }

 private:
  std::uint32_t bytes() const { return 1 + static_cast<std::uint32_t>(file_ * 7919 % kLargestBytes); }
  std::string name() const { return name_ + "." + std::to_string(file_); }

  void build(xdr::Writer& arguments) {
    const auto entry = [&](const std::string& name) {
      arguments.opaque(root_);
      arguments.string(name);
    };
    switch (step_) {
      case Step::Create:
        entry(name());
        arguments.u32(kGuarded);
        for (const std::uint32_t word : {1u, 0644u, 0u, 0u, 0u, 0u, 0u}) arguments.u32(word);
        return;
      case Step::Write:
        for (std::size_t at = 0; at < bytes(); ++at) memory_.bytes[at] = content(file_, at);
        arguments.opaque(handle_);
        arguments.u64(0);
        for (const std::uint32_t word : {bytes(), kFileSync, bytes()}) arguments.u32(word);
        return;
      case Step::Read:
        std::memset(memory_.bytes.data(), 0xEE, memory_.bytes.size());
        arguments.opaque(handle_);
        arguments.u64(0);
        arguments.u32(bytes());
        return;
      case Step::Rename:
        entry(name());
        entry(name() + ".renamed");
        return;
      case Step::Remove:
        return entry(name() + ".renamed");
    }
  }

  void finish(const rpcrdma::Reply& reply) noexcept {
    outstanding_ = false;
    if (reply.status() == rpcrdma::CallStatus::Cancelled ||
        reply.status() == rpcrdma::CallStatus::ConnectionLost)
      return;  // with its connection
    ++counts_.operations;
    xdr::Reader reader(reply.message());
    if (reply.status() != rpcrdma::CallStatus::Ok) return fail(to_string(reply.status()));
    const rpc::ReplyDecodeResult header = rpc::decode_reply(reader);
    if (!header.ok || !header.header.success()) return fail("an error of RPC");
    if (const std::uint32_t status = reader.u32(); status != 0)
      return fail(("NFS status " + std::to_string(status)).c_str());
    if (step_ == Step::Create) {
      if (!reader.boolean()) return fail("no handle");
      const auto handle = reader.opaque(64);
      handle_.assign(handle.begin(), handle.end());
    }
    if (step_ == Step::Read && !is_as_written(reader, reply)) return fail("other content than was written");
    if (step_ == Step::Remove) {
      ++file_;
      ++counts_.files;
    }
    step_ = step_ == Step::Remove ? Step::Create : static_cast<Step>(static_cast<int>(step_) + 1);
  }

  bool is_as_written(xdr::Reader& reader, const rpcrdma::Reply& reply) noexcept {
    if (reader.boolean()) reader.skip(84);
    const std::uint32_t count = reader.u32();
    if (count != bytes() || reply.item(0, count).where != rpcrdma::ItemResult::Where::Placed) return false;
    for (std::size_t at = 0; at < count; ++at)
      if (memory_.bytes[at] != content(file_, at)) return false;
    counts_.bytes_compared += count;
    return true;
  }

  void fail(const char* why) noexcept {
    ++counts_.errors;
    failed_ = true;
    std::fprintf(stderr, "step %d of %s: %s\n", static_cast<int>(step_), name().c_str(), why);
  }

  Client& client_;
  Session& session_;
  const Handle& root_;
  const std::string name_;
  const rdma::MemoryRegion memory_;
  Counts& counts_;
  Handle handle_;
  Step step_ = Step::Create;
  std::uint64_t file_ = 0;
  std::uint64_t since_ns_ = 0;
  bool outstanding_ = false;
  bool failed_ = false;
};

/// Mounts the export. Retries, because the MOUNT server may be unavailable for some time.
Handle root_of(const Options& options) {
  const std::uint64_t give_up = now_ns() + kPatienceNs;
  for (;;) try {
      return mount_root("127.0.0.1", options.mount_port, "/export");
    } catch (const ClientError&) {
      if (now_ns() > give_up) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

bool run(ToolDevice& device, const Options& options, const cli::Interruptible& interruptible,
         Counts& counts) {
  const Handle root = root_of(options);
  const std::size_t many = std::size_t{options.client.connections} * options.client.depth;
  const rdma::MemoryRegion memory = device.device->allocate_memory(many * kLargestBytes);
  std::vector<std::unique_ptr<Worker>> workers;  // the end of a lost connection ends their calls
  Client client(*device.device, device.manager(), options.client);
  for (std::size_t i = 0; i < many; ++i)
    workers.push_back(std::make_unique<Worker>(
        client, client.sessions()[i % client.sessions().size()], root,
        std::to_string(options.seed) + "." + std::to_string(i),
        rdma::MemoryRegion{memory.bytes.subspan(i * kLargestBytes, kLargestBytes), memory.lkey}, counts));
  const std::uint64_t end = now_ns() + static_cast<std::uint64_t>(options.seconds * 1e9);
  for (;;) {
    const bool ending = interruptible.told_to_end() || client.now() > end || counts.errors > 0;
    bool at_rest = true;
    for (const auto& worker : workers) {
      if (worker->stuck(client.now())) {
        ++counts.errors;
        std::fprintf(stderr, "A call has no answer for a minute.\n");
        return false;
      }
      at_rest = at_rest && (worker->at_rest() || worker->failed());
      if (worker->idle() && !worker->failed() && !(ending && worker->at_rest())) worker->go_on();
    }
    if (ending && at_rest) return counts.errors == 0;
    client.poll();
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice;
  bench::Options options;
  cli::Program program("Operations of which each is done once, and seen to be.");
  cli::Command& app = program.command();
  app.option("--device", options.device.driver, "RDMA driver").one_of({"loopback", "softroce"});
  app.option("--fabric", options.device.fabric, "loopback: fabric of the server");
  app.option("--ethdev", options.device.ethdev, "softroce: DPDK vdev with its arguments");
  app.option("--address", options.device.address, "softroce: local address, with prefix length");
  app.option("--server", options.device.server, "softroce: address of the server");
  app.option("--rpcrdma", options.client.version, "Version of RPC-over-RDMA").one_of({1, 2});
  app.option("--connections", options.client.connections, "Connections").from_to(1, 32);
  app.option("--depth", options.client.depth, "Calls outstanding on each").from_to(1, 64);
  app.option("--mount-port", options.mount_port, "TCP port of the MOUNT server").required();
  app.option("--seed", options.seed, "First part of all names");
  app.option("--seconds", options.seconds, "Duration, after which the files that are there are finished");
  if (const auto ended = program.parse(argc, argv)) return *ended;
  bench::Counts counts;
  std::string lost;
  const cli::Interruptible interruptible;
  try {
    bench::ToolDevice device = bench::open_device(options.device);
    bench::run(device, options, interruptible, counts);
  } catch (const std::exception& error) {
    lost = error.what();
  }
  const Json result = {{"operations", counts.operations},
                       {"files", counts.files},
                       {"bytes_compared", counts.bytes_compared},
                       {"errors", counts.errors},
                       {"lost", lost}};
  // The result is complete before SIGTERM ends the process again.
  std::cout << result.dump() << '\n' << std::flush;
  if (counts.errors > 0) return 1;
  return lost.empty() ? 0 : 3;
}
