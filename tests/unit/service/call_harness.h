// SPDX-License-Identifier: Apache-2.0
//
// A transport that is none: hands a service one call at a time and keeps what it answered.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "dataplane/service/memory/memory_service.h"

namespace sluice::service::memory {

using Bytes = std::vector<std::byte>;

/// Registered memory of nobody.
class FakeMemory {
 public:
  explicit FakeMemory(std::size_t bytes) : bytes_(bytes + 4096) {}
  rdma::MemoryRegion region() { return {std::span(bytes_), rdma::Lkey{7}}; }

 private:
  std::vector<std::byte> bytes_;
};

class TestCall final : public Call {
 public:
  TestCall(std::uint32_t program, std::uint32_t procedure, Bytes arguments, const Bytes& credential,
           bool auth_sys)
      : argument_bytes_(std::move(arguments)), credential_(credential), result_bytes_(80 * 1024) {
    header_.program = program;
    header_.version = 3;
    header_.procedure = procedure;
    if (auth_sys) header_.credential = {rpc::AuthFlavor::Sys, credential_};
    arguments_ = argument_bytes_;
    results_ = xdr::Writer(result_bytes_);
    peer_ = rdma::PeerAddress::from_ipv4(10, 0, 0, 9);
    state_bytes_.fill(std::byte{0});
    complete_ = [](Call& call, rpc::AcceptStat outcome) noexcept {
      auto& self = static_cast<TestCall&>(call);
      ++self.completions;
      self.stat = outcome;
      self.auth = self.auth_error_;
    };
    grow_ = nullptr;
  }

  void set_placed_bytes(std::uint32_t bytes) { placed_bytes_ = bytes; }
  void set_peer(rdma::PeerAddress peer) { peer_ = peer; }
  std::span<const rdma::Sge> pieces() const { return {pieces_.data(), piece_count_}; }
  std::uint16_t items() const { return item_count_; }
  const ResultItem& item(std::size_t i) const { return items_[i]; }

  /// Results as an inline reply would carry them: items put back in their places.
  Bytes reply() const {
    const auto written = results_.written();
    Bytes out;
    std::size_t at = 0;
    for (std::uint16_t i = 0; i < item_count_; ++i) {
      out.insert(out.end(), written.begin() + static_cast<std::ptrdiff_t>(at),
                 written.begin() + static_cast<std::ptrdiff_t>(items_[i].offset));
      at = items_[i].offset;
      std::uint32_t left = items_[i].bytes;
      for (std::uint32_t p = 0; p < items_[i].pieces; ++p) {
        const rdma::Sge& piece = pieces_[items_[i].first_piece + p];
        const std::uint32_t run = std::min(piece.length, left);
        out.insert(out.end(), piece.address, piece.address + run);
        left -= run;
      }
      EXPECT_EQ(left, 0u);
      out.resize(xdr::padded(out.size()));
    }
    out.insert(out.end(), written.begin() + static_cast<std::ptrdiff_t>(at), written.end());
    return out;
  }

  int completions = 0;
  rpc::AcceptStat stat = rpc::AcceptStat::SystemErr;
  rpc::AuthStat auth = rpc::AuthStat::Ok;

 private:
  Bytes argument_bytes_;
  Bytes credential_;
  mutable Bytes result_bytes_;
};

/// Builds XDR arguments.
class Args {
 public:
  Args() : bytes_(70000), writer_(bytes_) {}
  Args& handle(const Bytes& handle) { return writer_.opaque(handle), *this; }
  Args& word(std::uint32_t value) { return writer_.u32(value), *this; }
  Args& hyper(std::uint64_t value) { return writer_.u64(value), *this; }
  Args& text(std::string_view value) { return writer_.string(value), *this; }
  Args& data(std::span<const std::byte> value) { return writer_.opaque(value), *this; }
  Args& no_attributes() { return word(0).word(0).word(0).word(0).word(0).word(0); }
  Args& mode(std::uint32_t value) { return word(1).word(value).word(0).word(0).word(0).word(0).word(0); }
  Args& size(std::uint64_t value) { return word(0).word(0).word(0).word(1).hyper(value).word(0).word(0); }
  Bytes take() const {
    const auto written = writer_.written();
    return {written.begin(), written.end()};
  }

 private:
  Bytes bytes_;
  xdr::Writer writer_;
};

inline std::uint64_t& test_clock() {
  static std::uint64_t now = 1'700'000'000'000'000'000;
  return now;
}
inline std::uint64_t tick() noexcept {
  return test_clock() += 1000;
}

/// A service with exports "/a" (plain), "/ro" (read-only), "/small" (quota 256 KiB), "/root" (no squashing),
/// "/mine" (one client network).
class Exports {
 public:
  explicit Exports(std::size_t bytes = 32u << 20, std::uint32_t max_files = 20000)
      : data_(bytes),
        zeros_(kLargeBytes + 64),
        service_(data_.region(), zeros_.region(), config(max_files), &tick) {
    as(1000, 1000);
  }

  enum : std::uint32_t { kPlain, kReadOnly, kSmall, kNoSquash, kMine };
  static MemoryServiceConfig config(std::uint32_t max_files) {
    MemoryServiceConfig config{.max_files = max_files, .handle_key = {}, .exports = {}};
    for (std::size_t i = 0; i < config.handle_key.size(); ++i)
      config.handle_key[i] = static_cast<std::byte>(i * 7);
    config.exports = {{.path = "/a", .allowed = {}},
                      {.path = "/ro", .read_only = true, .allowed = {}},
                      {.path = "/small", .quota_bytes = 256 * 1024, .allowed = {}},
                      {.path = "/root", .root_squash = false, .allowed = {}},
                      {.path = "/mine", .allowed = {{rdma::PeerAddress::from_ipv4(192, 0, 2, 0), 96 + 24}}}};
    return config;
  }

  MemoryService& service() { return service_; }
  void as(std::uint32_t uid, std::uint32_t gid) {
    Bytes body(64);
    xdr::Writer writer(body);
    rpc::encode_auth_sys(writer, {.machine_name = "t", .uid = uid, .gid = gid});
    credential_.assign(writer.written().begin(), writer.written().end());
  }
  void as_nobody() { auth_sys_ = false; }
  void from(rdma::PeerAddress peer) { peer_ = peer; }
  Bytes root(std::uint32_t number) {
    const auto handle = service_.root_handle(number);
    return {handle.begin(), handle.end()};
  }

  std::unique_ptr<TestCall> start(std::uint32_t procedure, const Args& args) {
    auto call = std::make_unique<TestCall>(ulb::kNfsProgram, procedure, args.take(), credential_, auth_sys_);
    if (peer_) call->set_peer(*peer_);
    return call;
  }
  /// Runs a call to its end and returns the results.
  Bytes run(std::uint32_t procedure, const Args& args) {
    auto call = start(procedure, args);
    EXPECT_EQ(service_.execute(*call), Execution::Started);
    EXPECT_EQ(call->completions, 1);
    last_stat = call->stat;
    Bytes reply = call->reply();
    service_.release(*call);
    return reply;
  }
  Status status_of(std::uint32_t procedure, const Args& args) {
    const Bytes reply = run(procedure, args);
    return reply.size() < 4 ? Status::ServerFault : static_cast<Status>(xdr::load_u32(reply.data()));
  }
  /// CREATE, MKDIR and the like: the new object's handle.
  Bytes make(std::uint32_t procedure, const Args& args) {
    const Bytes reply = run(procedure, args);
    xdr::Reader reader(reply);
    EXPECT_EQ(reader.u32(), 0u);
    EXPECT_TRUE(reader.boolean());
    const auto handle = reader.opaque(64);
    return {handle.begin(), handle.end()};
  }
  Bytes create(const Bytes& directory, std::string_view name, std::uint32_t mode = 0644) {
    return make(ulb::kNfs3Create, Args().handle(directory).text(name).word(0).mode(mode));
  }
  Bytes mkdir(const Bytes& directory, std::string_view name, std::uint32_t mode = 0755) {
    return make(ulb::kNfs3MkDir, Args().handle(directory).text(name).mode(mode));
  }
  Status write(const Bytes& file, std::uint64_t offset, std::span<const std::byte> data) {
    return status_of(
        ulb::kNfs3Write,
        Args().handle(file).hyper(offset).word(static_cast<std::uint32_t>(data.size())).word(2).data(data));
  }
  Bytes read(const Bytes& file, std::uint64_t offset, std::uint32_t count) {
    const Bytes reply = run(ulb::kNfs3Read, Args().handle(file).hyper(offset).word(count));
    xdr::Reader reader(reply);
    EXPECT_EQ(reader.u32(), 0u);
    if (reader.boolean()) reader.skip(84);
    reader.u32();
    reader.boolean();
    const auto data = reader.opaque(1 << 20);
    EXPECT_TRUE(reader.ok());
    return {data.begin(), data.end()};
  }
  void settle_background() {
    for (int i = 0; i < 100000 && service_.background(0); ++i) {
    }
  }

  rpc::AcceptStat last_stat{};

 private:
  FakeMemory data_;
  FakeMemory zeros_;
  MemoryService service_;
  Bytes credential_;
  bool auth_sys_ = true;
  std::optional<rdma::PeerAddress> peer_;
};

inline Bytes pattern(std::size_t bytes, std::uint32_t seed) {
  Bytes out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 31 + seed * 17 + (i >> 8));
  return out;
}

}  // namespace sluice::service::memory
