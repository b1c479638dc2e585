// SPDX-License-Identifier: Apache-2.0
//
// Replaces the transport: a test drives one call through a service, step by step, with real memory for sinks
// and result items.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "dataplane/service/api/service.h"

namespace sluice::service::test {

using Bytes = std::vector<std::byte>;

class TestCall final : public Call, private CallHost {
 public:
  /// Size of a call slot's own reply buffer, in bytes.
  static constexpr std::size_t kInlineBytes = 1024;
  static constexpr std::size_t kLargeBytes = 64 << 10;

  TestCall() : Call(static_cast<CallHost&>(*this), storage_), inline_room_(kInlineBytes) {
    peer_ = &own_peer_;
    peer_host_ = &own_peer_host_;
  }

  // --- Set by the test
  rpc::CallHeader& header() noexcept { return header_; }
  void set_peer(const PeerAddress& peer) noexcept { own_peer_ = peer; }
  void set_peer_host(const HostName& host) noexcept { own_peer_host_ = host; }
  bool memory_available = true;         ///< require_results() beyond the slot's buffer
  std::function<void()> at_completion;  ///< called when the service completes the call; may be empty
  /// Allocates what require_results() provides, otherwise on first use.
  void allocate_large_room() { large_room_.resize(kLargeBytes); }

  /// Starts a call. The object holds views, so the arguments must stay valid until release().
  void start(std::span<const std::byte> arguments, std::uint32_t placed_bytes = 0) noexcept {
    arguments_ = arguments;
    placed_bytes_ = placed_bytes;
    piece_count_ = item_count_ = 0;
    completions_ = 0;
    denied_ = false;
    auth_error_ = rpc::AuthStat::Ok;
    results_ = xdr::Writer(inline_room_);
    room_ = inline_room_;
    has_state_ = false;
  }

  // --- Steps of the transport
  Placement place(Service& service) noexcept {
    with_service_ = true;
    return service.place(*this);
  }
  /// Performs the RDMA Reads: fills the sink, which must hold all of the data.
  void pull(std::span<const std::byte> data) noexcept {
    for (const rdma::Sge& piece : pieces()) {
      if (data.empty()) break;
      const std::size_t run = std::min<std::size_t>(piece.length, data.size());
      std::memcpy(piece.address, data.data(), run);
      data = data.subspan(run);
    }
    EXPECT_TRUE(data.empty()) << "the sink is too small";
  }
  Execution execute(Service& service) noexcept {
    if (placed_bytes_ != 0) piece_count_ = 0;
    with_service_ = true;
    return service.execute(*this);
  }
  void release(Service& service) noexcept {
    if (with_service_) service.release(*this);
    with_service_ = false;
  }

  // --- Results
  int completions() const noexcept { return completions_; }
  rpc::AcceptStat accepted() const noexcept { return accepted_; }
  bool denied() const noexcept { return denied_; }
  rpc::AuthStat auth_error() const noexcept { return auth_error_; }
  using Call::pieces;
  std::size_t results_capacity() const noexcept { return room_.size(); }

  /// Returns the results in inline form: items and their padding are inserted from the memory that they refer
  /// to now.
  Bytes results() const {
    Bytes out;
    const auto written = const_cast<TestCall*>(this)->results_.written();
    std::size_t at = 0;
    for (const ResultItem& item : items()) {
      out.insert(out.end(), written.begin() + at, written.begin() + item.offset);
      at = item.offset;
      const std::size_t before = out.size();
      for (const rdma::Sge& piece : pieces().subspan(item.first_piece, item.pieces))
        out.insert(out.end(), piece.address, piece.address + piece.length);
      EXPECT_EQ(out.size() - before, item.bytes) << "pieces do not add up to the item";
      out.resize(before + xdr::padded(item.bytes));
    }
    out.insert(out.end(), written.begin() + at, written.end());
    return out;
  }

 private:
  CallStorage storage_;
  PeerAddress own_peer_;
  HostName own_peer_host_;

  void on_complete(Call&, rpc::AcceptStat stat) noexcept override {
    if (at_completion) at_completion();
    ++completions_;
    denied_ = auth_error_ != rpc::AuthStat::Ok;
    const bool overflow = stat == rpc::AcceptStat::Success && !results_.ok();
    accepted_ = overflow ? rpc::AcceptStat::SystemErr : stat;
  }
  bool on_grow_results(Call&, std::size_t bytes) noexcept override {
    EXPECT_EQ(results_.position(), 0u) << "require_results() after something was written";
    EXPECT_LE(bytes, kLargeBytes) << "more than the transport has";
    if (!memory_available || bytes > kLargeBytes) return false;
    allocate_large_room();
    room_ = large_room_;
    results_ = xdr::Writer(room_);
    return true;
  }
  void on_placed(Call&, Placement) noexcept override { ADD_FAILURE() << "place() decides at once"; }
  void on_await_memory(Call&) noexcept override { ADD_FAILURE() << "execute() says what it needs at once"; }

  Bytes inline_room_;
  Bytes large_room_;
  std::span<std::byte> room_;
  int completions_ = 0;
  rpc::AcceptStat accepted_ = rpc::AcceptStat::SystemErr;
  bool denied_ = false;
  bool with_service_ = false;
};

}  // namespace sluice::service::test
