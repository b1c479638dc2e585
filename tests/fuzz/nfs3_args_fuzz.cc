// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: sequences of NFSv3 and NFSACL calls with arbitrary arguments against one memory export,
// with inline and placed data, completed and abandoned, at the owner or by a reader if the input has an odd
// length and the procedure has its highest bit. Requirements: no crash, no over-read, one answer to each
// call, and all memory free at the end.
//
// Build with clang++ -std=c++20 -fsanitize=fuzzer,address,undefined and the sources of
// dataplane/service/memory, dataplane/ulb and dataplane/rpc.
//
// The input consists of records: one byte of operation, one byte of procedure and flags, two bytes of length,
// arguments. In the arguments, a length word of 32 that is followed by a slot number and zeros is replaced by
// a real handle, so that the fuzzer passes the check of the MAC.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "dataplane/service/memory/file_reader.h"
#include "dataplane/service/memory/memory_service.h"

namespace sluice::service {
namespace {

constexpr std::size_t kArenaBytes = 4 << 20;
constexpr std::size_t kPadBytes = 64;
constexpr std::size_t kResultBytes = 64 << 10;
constexpr std::size_t kHandles = 16;
constexpr std::size_t kMaxCalls = 64;
constexpr std::size_t kPending = 4;

std::uint64_t fuzz_clock() noexcept {
  static std::uint64_t now_ns = 1'700'000'000'000'000'000;
  return ++now_ns;
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

class FuzzCall final : public Call, private CallHost {
 public:
  FuzzCall() : Call(static_cast<CallHost&>(*this), storage_) { peer_ = &own_peer_; }

  void start(std::uint32_t program, std::uint32_t procedure, std::vector<std::byte> arguments,
             std::uint32_t placed_bytes) {
    // The allocation is exactly as long as the arguments, so that the sanitizer detects a read beyond them.
    owned_ = std::make_unique<std::byte[]>(arguments.size());
    std::copy(arguments.begin(), arguments.end(), owned_.get());
    arguments_ = {owned_.get(), arguments.size()};
    header_ = {};
    header_.program = program;
    header_.version = 3;
    header_.procedure = procedure;
    placed_bytes_ = placed_bytes;
    piece_count_ = item_count_ = 0;
    auth_error_ = rpc::AuthStat::Ok;
    results_ = xdr::Writer(room_);
    has_state_ = false;
    completions = 0;
    success = false;
  }

  /// Writes into every byte of the sink, as the RDMA Reads may.
  void pull() {
    std::size_t room = 0;
    for (const rdma::Sge& piece : pieces()) {
      std::memset(piece.address, 0xa5, piece.length);
      room += piece.length;
    }
    if (room < placed_bytes_) fail("the sink is too small");
    piece_count_ = 0;
  }

  /// Reads every byte of the items, as the RDMA Writes do.
  void push() {
    volatile std::byte seen{};
    for (const service::ResultItem& item : items()) {
      std::size_t bytes = 0;
      for (const rdma::Sge& piece : pieces().subspan(item.first_piece, item.pieces)) {
        for (std::uint32_t k = 0; k < piece.length; ++k) seen = piece.address[k];
        bytes += piece.length;
      }
      if (bytes != item.bytes) fail("pieces do not add up to the item");
    }
    static_cast<void>(seen);
  }

  std::span<const std::byte> written() noexcept { return results_.written(); }
  int completions = 0;
  bool success = false;
  Service* service = nullptr;  ///< set until the call is released

 private:
  service::CallStorage storage_;
  PeerAddress own_peer_;

  void on_complete(Call&, rpc::AcceptStat stat) noexcept override {
    ++completions;
    success = stat == rpc::AcceptStat::Success && auth_error_ == rpc::AuthStat::Ok;
    if (success && !results_.ok()) fail("results do not fit");
  }
  bool on_grow_results(Call&, std::size_t) noexcept override { return false; }
  void on_placed(Call&, Placement) noexcept override { fail("place() decides at once"); }
  void on_await_memory(Call&) noexcept override { fail("execute() says what it needs at once"); }

  std::unique_ptr<std::byte[]> owned_;
  std::vector<std::byte> room_ = std::vector<std::byte>(kResultBytes);
};

/// Memory reused for all inputs; it must be zero again at the end of each.
rdma::MemoryRegion arena() {
  static const rdma::MemoryRegion region = [] {
    void* memory = ::mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return rdma::MemoryRegion{{static_cast<std::byte*>(memory), kArenaBytes}, rdma::Lkey{1}};
  }();
  return region;
}

class Session {
 public:
  /// `by_reader` also creates a reader, as on a reactor without the files, which gets some of the calls.
  explicit Session(bool by_reader) {
    memory::MemoryServiceConfig config;
    config.max_files = 200;
    config.exports = {{.path = "/a", .all_squash = true, .anonuid = 0, .anongid = 0},
                      {.path = "/b", .quota_bytes = 1 << 20},
                      {.path = "/c", .read_only = true}};
    service_ = std::make_unique<memory::MemoryService>(arena(), rdma::MemoryRegion{zeros_, rdma::Lkey{2}},
                                                       config, &fuzz_clock);
    if (by_reader)
      reader_ = std::make_unique<memory::FileReader>(
          *service_, *service_, memory::FileReader::Keys{.data = rdma::Lkey{1}, .zeros = rdma::Lkey{2}});
    for (std::uint32_t i = 0; i < 3; ++i) {
      const auto root = service_->root_handle(i);
      handles_.emplace_back(root.begin(), root.end());
    }
  }

  void run(const std::uint8_t* data, std::size_t size) {
    for (std::size_t calls = 0; size >= 4 && calls < kMaxCalls; ++calls) {
      const std::uint8_t operation = data[0];
      const std::uint8_t procedure = data[1];
      const std::size_t bytes = std::min<std::size_t>(data[2] | data[3] << 8, size - 4);
      std::vector<std::byte> arguments(bytes);
      if (bytes > 0) std::memcpy(arguments.data(), data + 4, bytes);
      data += 4 + bytes;
      size -= 4 + bytes;
      put_handles(arguments);
      one_call(operation, procedure, std::move(arguments));
      if (operation & 0x40) service_->background(0);
      if (reader_ && (procedure & 0x80) == 0) reader_->background(0);
    }
    finish();
  }

 private:
  void put_handles(std::vector<std::byte>& arguments) {
    for (std::size_t at = 0; at + 4 + memory::kHandleBytes <= arguments.size(); at += 4) {
      if (xdr::load_u32(&arguments[at]) != memory::kHandleBytes) continue;
      const std::uint32_t slot = xdr::load_u32(&arguments[at + 4]);
      if (slot >= handles_.size()) continue;
      std::copy(handles_[slot].begin(), handles_[slot].end(),
                arguments.begin() + static_cast<std::ptrdiff_t>(at) + 4);
    }
  }

  void one_call(std::uint8_t operation, std::uint8_t procedure, std::vector<std::byte> arguments) {
    FuzzCall& call = calls_[operation % kPending];
    end(call);
    const bool acl = (operation & 0x80) != 0;
    Service& owner = acl ? service_->acl_service() : static_cast<Service&>(*service_);
    Service& service = reader_ && !acl && (procedure & 0x80) != 0 ? static_cast<Service&>(*reader_) : owner;
    const std::uint32_t placed = (procedure & 0x40) != 0 && arguments.size() >= 4
                                     ? xdr::load_u32(&arguments[arguments.size() - 4])
                                     : 0;
    call.start(acl ? ulb::kNfsAclProgram : ulb::kNfsProgram, procedure & 0x3f, std::move(arguments),
               std::min<std::uint32_t>(placed + (operation >> 2 & 3), 2 << 20));
    call.service = &service;
    if (call.placed_bytes() != 0) {
      const Placement placement = service.place(call);
      if (placement == Placement::Reply) {
        if (call.completions != 1) fail("Reply without an answer");
        return end(call);
      }
      if (placement == Placement::Assemble) return end(call);
      if (call.completions != 0) fail("answered before the data came");
      if ((operation & 0x10) != 0) return;  // abandoned when its slot is reused
      call.pull();
    }
    if (service.execute(call) == Execution::NeedsMemory) return end(call);
    if (call.completions != 1) fail("not answered, or twice");
    if (call.success) {
      call.push();
      learn_handle(call.written());
    }
    if ((operation & 0x20) == 0) end(call);  // otherwise its reply is still being sent
  }

  /// Adds a valid handle that is found in results to the handles that later calls use.
  void learn_handle(std::span<const std::byte> results) {
    for (std::size_t at = 0; at + 4 + memory::kHandleBytes <= results.size() && at < 256; at += 4) {
      if (xdr::load_u32(&results[at]) != memory::kHandleBytes) continue;
      std::vector<std::byte> handle(
          results.begin() + static_cast<std::ptrdiff_t>(at) + 4,
          results.begin() + static_cast<std::ptrdiff_t>(at) + 4 + memory::kHandleBytes);
      if (service_->file_system().find(handle).status != memory::Status::Ok) continue;
      if (handles_.size() < kHandles)
        handles_.push_back(std::move(handle));
      else
        handles_[3 + learned_++ % (kHandles - 3)] = std::move(handle);
      return;
    }
  }

  void end(FuzzCall& call) {
    if (call.service == nullptr) return;
    call.service->release(call);
    call.service = nullptr;
  }

  /// Releases all calls and removes all files; then all memory has to be free, and zero.
  void finish() {
    for (FuzzCall& call : calls_) end(call);
    memory::FileSystem& fs = service_->file_system();
    for (std::uint32_t i = 0; i < fs.export_count(); ++i) clear(fs, fs.root(i));
    constexpr int kIterations = 4;  // a grace period takes two of each reactor
    for (int idle = 0; idle < kIterations; ++idle) {
      if (service_->background(0)) idle = 0;
      if (reader_) reader_->background(0);
    }
    if (fs.free_bytes() != fs.blocks().capacity_bytes()) fail("blocks are missing");
    if (fs.blocks().settling_bytes() != 0) fail("freed blocks are still in use");
    for (std::uint32_t i = 0; i < fs.export_count(); ++i)
      if (fs.use(i).used_bytes != 0 || fs.files(i) != 1) fail("an export's accounts do not add up");
    if (reader_) std::memset(arena().bytes.data(), 0, kArenaBytes);  // the reserved blocks may be dirty
    for (std::size_t at = 0; at < kArenaBytes; at += 8) {
      std::uint64_t word;
      std::memcpy(&word, arena().bytes.data() + at, 8);
      if (word != 0) fail("scrubbed memory is not zero");
    }
    for (std::size_t at = 0; at < memory::kLargeBytes; ++at)
      if (zeros_[at] != std::byte{0}) fail("the holes' zeros were written to");
  }
  void clear(memory::FileSystem& fs, memory::InodeNumber directory) {
    while (const memory::EntryNumber entry = fs.entry_after(directory, 0)) {
      const memory::InodeNumber child = fs.entry(entry).inode.own();
      if (fs.inode(child).type == memory::FileType::Directory) clear(fs, child);
      fs.remove_entry(entry);
      fs.publish();
    }
  }

  std::vector<std::byte> zeros_ = std::vector<std::byte>(memory::kLargeBytes + kPadBytes);
  std::unique_ptr<memory::MemoryService> service_;
  std::unique_ptr<memory::FileReader> reader_;
  std::vector<std::vector<std::byte>> handles_;
  std::size_t learned_ = 0;
  FuzzCall calls_[kPending];
};

}  // namespace
}  // namespace sluice::service

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto session = std::make_unique<sluice::service::Session>(size % 2 == 1);
  session->run(data, size);
  for (const auto* binding :
       {&sluice::ulb::nfs3_binding(), &sluice::ulb::nfsacl3_binding(), &sluice::ulb::mount3_binding()})
    if (size > 0)
      static_cast<void>(
          binding->max_results_bytes(data[0], {reinterpret_cast<const std::byte*>(data), size}));
  std::vector<std::byte> results(size);
  if (size > 0) std::memcpy(results.data(), data, size);
  sluice::ulb::nfs3_binding().cap_sizes(results, {.data_bytes = 1 << 20, .message_bytes = 2 << 20}, nullptr);
  return 0;
}
