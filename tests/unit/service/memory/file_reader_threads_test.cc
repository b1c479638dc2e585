// SPDX-License-Identifier: Apache-2.0
//
// Three readers read files in three threads while the owner creates, cuts and removes files.
// ThreadSanitizer judges every access, and the test what was read.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/service/memory/file_reader.h"
#include "tests/unit/service/memory/plain_calls.h"

namespace sluice::service::test {
namespace {

using memory::FileReader;
using memory::kLargeBytes;
using memory::MemoryService;

constexpr std::uint32_t kReaders = 3;
constexpr std::uint32_t kNames = 4;
constexpr std::uint64_t kReadsOfEach = 500;
constexpr std::uint64_t kFarBlock = memory::kDirectBlocks * std::uint64_t{kLargeBytes};

std::uint64_t tick() noexcept {
  static std::atomic<std::uint64_t> ns{1'000'000'000};
  return ns.fetch_add(1000, std::memory_order_relaxed);
}

/// Service for the owner that fails every call.
class Refusing final : public Service {
 public:
  explicit Refusing(const service::Binding& binding) : binding_(binding) {}
  const service::Binding& binding() const noexcept override { return binding_; }
  Execution execute(Call& call) noexcept override {
    call.complete(rpc::AcceptStat::SystemErr);
    return Execution::Started;
  }

 private:
  const service::Binding& binding_;
};

std::string name_of(std::uint64_t number) {
  return std::to_string(number % kNames);
}

class Owner {
 public:
  explicit Owner(MemoryService& service) : service_(service) {
    const auto root = service.root_handle(0);
    root_.assign(root.begin(), root.end());
  }
  const Bytes& root() const { return root_; }

  /// Replaces, cuts or removes a file whose bytes all have one value.
  void change(std::uint32_t turn) {
    const std::string name = name_of(turn);
    Bytes file = handle_in(results_of(service_, ulb::kNfs3Lookup, named(name)), false);
    if (file.empty()) file = make(name, turn);
    if (!file.empty() && turn % 3 == 0) cut(file, turn % 4096);
    if (turn % 2 == 0) results_of(service_, ulb::kNfs3Remove, named(name));
    for (int i = 0; i < 4; ++i) service_.background(0);
  }

 private:
  Bytes named(const std::string& name) const {
    return encoded([&](auto& out) {
      out.opaque(root_);
      out.string(name);
    });
  }
  Bytes make(const std::string& name, std::uint32_t turn) {
    const Bytes file = handle_in(results_of(service_, ulb::kNfs3Create, encoded([&](auto& out) {
                                              out.opaque(root_);
                                              out.string(name);
                                              for (int i = 0; i < 7; ++i) out.u32(0);
                                            })),
                                 true);
    if (file.empty()) return file;
    const std::uint64_t offset = turn % 5 == 0 ? kFarBlock : 0;
    const Bytes data(1 + turn * 37 % 6000, static_cast<std::byte>(1 + turn % 255));
    results_of(service_, ulb::kNfs3Write,
               encoded(
                   [&](auto& out) {
                     out.opaque(file);
                     out.u64(offset);
                     out.u32(static_cast<std::uint32_t>(data.size()));
                     out.u32(2);
                     out.opaque(data);
                   },
                   8192));
    // Sets the access time, so that readers answer.
    results_of(service_, ulb::kNfs3Read, encoded([&](auto& out) {
                 out.opaque(file);
                 out.u64(0);
                 out.u32(1);
               }));
    return file;
  }
  void cut(const Bytes& file, std::uint64_t size) {
    results_of(service_, ulb::kNfs3SetAttr, encoded([&](auto& out) {
                 out.opaque(file);
                 for (int i = 0; i < 3; ++i) out.boolean(false);
                 out.boolean(true);
                 out.u64(size);
                 for (int i = 0; i < 3; ++i) out.u32(0);
               }));
  }

  MemoryService& service_;
  Bytes root_;
};

class Reader {
 public:
  Reader(MemoryService& service, Refusing& owner, const Bytes& root)
      : root_(root), files_(service, owner, {.data = rdma::Lkey{1}, .zeros = rdma::Lkey{2}}) {}

  void read(std::uint64_t turn) {
    files_.background(0);
    const Bytes handle = handle_in(results_of(files_, ulb::kNfs3Lookup, encoded([&](auto& out) {
                                                out.opaque(root_);
                                                out.string(name_of(turn));
                                              })),
                                   false);
    if (handle.empty()) return;
    for (const std::uint64_t offset : {std::uint64_t{0}, kFarBlock}) {
      const Bytes results = results_of(files_, ulb::kNfs3Read, encoded([&](auto& out) {
                                         out.opaque(handle);
                                         out.u64(offset);
                                         out.u32(8192);
                                       }));
      xdr::Reader in(results);
      if (results.empty() || in.u32() != 0) continue;
      for (int word = 0; word < 22 + 2; ++word) in.u32();
      const auto data = in.opaque(8192);
      const auto first = data.empty() ? std::byte{0} : data[0];
      mixed_ += std::ranges::count(data, first) == static_cast<std::ptrdiff_t>(data.size()) ? 0 : 1;
      reads_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  std::uint64_t reads() const { return reads_.load(std::memory_order_relaxed); }
  std::uint64_t mixed() const { return mixed_; }

 private:
  const Bytes root_;
  FileReader files_;
  std::atomic<std::uint64_t> reads_{0};
  std::uint64_t mixed_ = 0;
};

TEST(FileReaderThreads, every_read_returns_the_bytes_of_one_file) {
  std::vector<std::byte> arena(32 * kLargeBytes);
  std::vector<std::byte> zeros(kLargeBytes + 64);
  memory::MemoryServiceConfig config{.max_files = 16, .handle_key = {std::byte{1}}, .exports = {}};
  config.exports = {{.path = "/", .all_squash = true, .anonuid = 0}};
  MemoryService service({arena, rdma::Lkey{1}}, {zeros, rdma::Lkey{2}}, config, &tick);
  Owner owner(service);
  Refusing refusing(service.binding());
  std::vector<std::unique_ptr<Reader>> readers;
  for (std::uint32_t i = 0; i < kReaders; ++i)
    readers.push_back(std::make_unique<Reader>(service, refusing, owner.root()));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (const auto& reader : readers)
    threads.emplace_back([&stop, &reader] {
      for (std::uint64_t turn = 0; !stop.load(std::memory_order_relaxed); ++turn) reader->read(turn);
    });
  const auto enough = [](const auto& reader) { return reader->reads() >= kReadsOfEach; };
  for (std::uint32_t turn = 0; !std::ranges::all_of(readers, enough); ++turn) owner.change(turn);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const auto& reader : readers) EXPECT_EQ(reader->mixed(), 0u);
}

}  // namespace
}  // namespace sluice::service::test
