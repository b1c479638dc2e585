// SPDX-License-Identifier: Apache-2.0
//
// A device that records, in order, the work posted to and completed by the device that it wraps. This is the
// provider log that the requirement rows refer to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pmd/device.h"

namespace sluice::conformance {

enum class OpKind {
  PostSend,
  PostRead,
  PostWrite,
  PostReceive,
  Bind,
  Invalidate,
  ReceiveDone,
  SendDone,
  ReadDone,
  InvalidateDone
};

struct Op {
  OpKind kind{};
  std::uint64_t wr_id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t remote_address = 0;
  rdma::Rkey rkey{};
  rdma::AccessFlags access = 0;
  bool with_invalidate = false;
  bool ok = true;
  std::size_t empty_pieces = 0;
  std::vector<std::byte> content;  ///< PostSend
};

class OpLog {
 public:
  void add(Op op) { ops_.push_back(std::move(op)); }
  void clear() { ops_.clear(); }
  const std::vector<Op>& ops() const { return ops_; }
  std::size_t count(OpKind kind) const {
    return static_cast<std::size_t>(
        std::count_if(ops_.begin(), ops_.end(), [&](const Op& op) { return op.kind == kind; }));
  }
  std::vector<Op> all(OpKind kind) const {
    std::vector<Op> result;
    std::copy_if(ops_.begin(), ops_.end(), std::back_inserter(result),
                 [&](const Op& op) { return op.kind == kind; });
    return result;
  }
  /// Returns the index of the n-th operation of a kind, or -1.
  std::ptrdiff_t index_of(OpKind kind, std::size_t n = 0) const {
    for (std::size_t i = 0; i < ops_.size(); ++i)
      if (ops_[i].kind == kind && n-- == 0) return static_cast<std::ptrdiff_t>(i);
    return -1;
  }

 private:
  std::vector<Op> ops_;
};

class LoggedQueuePair final : public rdma::QueuePair {
 public:
  LoggedQueuePair(Owned<rdma::QueuePair> inner, OpLog& log) : inner_(std::move(inner)), log_(log) {}

  rdma::QueuePair& inner() { return *inner_; }
  rdma::QueuePairNumber number() const noexcept override { return inner_->number(); }
  State state() const noexcept override { return inner_->state(); }
  std::size_t send_room() const noexcept override { return inner_->send_room(); }
  void to_error() noexcept override { inner_->to_error(); }

  std::size_t post_send(std::span<const rdma::SendWr> wrs) noexcept override {
    const std::size_t posted = inner_->post_send(wrs);
    for (const rdma::SendWr& wr : wrs.first(posted)) log_.add(describe(wr));
    return posted;
  }
  std::size_t post_recv(std::span<const rdma::RecvWr> wrs) noexcept override {
    const std::size_t posted = inner_->post_recv(wrs);
    for (const rdma::RecvWr& wr : wrs.first(posted))
      log_.add({.kind = OpKind::PostReceive, .wr_id = wr.wr_id, .bytes = wr.sge.length, .content = {}});
    return posted;
  }
  std::optional<rdma::Rkey> bind_window(rdma::MemoryWindow window, std::span<std::byte> bytes,
                                        rdma::Lkey lkey, rdma::AccessFlags access) noexcept override {
    const auto rkey = inner_->bind_window(window, bytes, lkey, access);
    log_.add({.kind = OpKind::Bind,
              .bytes = bytes.size(),
              .remote_address = reinterpret_cast<std::uintptr_t>(bytes.data()),
              .rkey = rkey.value_or(rdma::Rkey{0}),
              .access = access,
              .ok = rkey.has_value(),
              .content = {}});
    return rkey;
  }

 private:
  static Op describe(const rdma::SendWr& wr) {
    Op op{.wr_id = wr.wr_id, .remote_address = wr.remote_address, .rkey = wr.rkey, .content = {}};
    for (const rdma::Sge& sge : wr.sges) {
      op.bytes += sge.length;
      op.empty_pieces += sge.length == 0 ? 1 : 0;
    }
    switch (wr.opcode) {
      case rdma::SendOpcode::Send:
      case rdma::SendOpcode::SendWithInvalidate:
      case rdma::SendOpcode::SendWithImmediate:
        op.kind = OpKind::PostSend;
        op.with_invalidate = wr.opcode == rdma::SendOpcode::SendWithInvalidate;
        for (const rdma::Sge& sge : wr.sges)
          op.content.insert(op.content.end(), sge.address, sge.address + sge.length);
        break;
      case rdma::SendOpcode::RdmaWrite:
      case rdma::SendOpcode::RdmaWriteWithImmediate:
        op.kind = OpKind::PostWrite;
        break;
      case rdma::SendOpcode::RdmaRead:
        op.kind = OpKind::PostRead;
        break;
      case rdma::SendOpcode::LocalInvalidate:
        op.kind = OpKind::Invalidate;
        break;
    }
    return op;
  }

  Owned<rdma::QueuePair> inner_;
  OpLog& log_;
};

/// Unwraps our queue pairs, because connection management works on the driver's queue pairs.
class LoggedConnectionManager final : public rdma::ConnectionManager {
 public:
  explicit LoggedConnectionManager(rdma::ConnectionManager& inner) : inner_(inner) {}
  void listen(std::uint16_t port) override { inner_.listen(port); }
  std::optional<rdma::CmId> connect(rdma::QueuePair& qp, std::uint16_t port,
                                    std::span<const std::byte> private_data) noexcept override {
    return inner_.connect(static_cast<LoggedQueuePair&>(qp).inner(), port, private_data);
  }
  bool accept(rdma::CmId id, rdma::QueuePair& qp, std::span<const std::byte> private_data) noexcept override {
    return inner_.accept(id, static_cast<LoggedQueuePair&>(qp).inner(), private_data);
  }
  void reject(rdma::CmId id, std::span<const std::byte> private_data) noexcept override {
    inner_.reject(id, private_data);
  }
  void disconnect(rdma::CmId id) noexcept override { inner_.disconnect(id); }
  std::size_t poll_events(std::span<rdma::CmEvent> events) noexcept override {
    return inner_.poll_events(events);
  }

 private:
  rdma::ConnectionManager& inner_;
};

class LoggedDevice final : public rdma::Device {
 public:
  /// `remote_invalidation` is false for a device without SendWithInvalidate.
  LoggedDevice(std::unique_ptr<rdma::Device> inner, OpLog& log, bool remote_invalidation = true)
      : inner_(std::move(inner)),
        cm_(*inner_->connection_manager()),
        log_(log),
        remote_invalidation_(remote_invalidation) {}

  const std::string& name() const noexcept override { return inner_->name(); }
  rdma::DeviceLimits limits() const noexcept override {
    rdma::DeviceLimits limits = inner_->limits();
    limits.remote_invalidation = limits.remote_invalidation && remote_invalidation_;
    return limits;
  }
  rdma::MemoryRegion allocate_memory(std::size_t bytes) override { return inner_->allocate_memory(bytes); }
  rdma::MemoryRegion register_memory(std::span<std::byte> bytes) override {
    return inner_->register_memory(bytes);
  }
  rdma::MemoryWindow allocate_window() override { return inner_->allocate_window(); }
  Owned<rdma::QueuePair> create_queue_pair(const rdma::QueuePairLimits& limits) override {
    return std::make_unique<LoggedQueuePair>(inner_->create_queue_pair(limits), log_);
  }
  rdma::ConnectionManager* connection_manager() noexcept override { return &cm_; }

  /// Completions for which this returns true are held back in the device.
  std::function<bool(const rdma::WorkCompletion&)> hold;

  std::size_t poll(std::span<rdma::WorkCompletion> completions) noexcept override {
    const std::size_t count = next(completions);
    moved_ = inner_->moved();
    for (const rdma::WorkCompletion& wc : completions.first(count)) {
      const bool ok = wc.status == rdma::WcStatus::Success;
      OpKind kind = OpKind::SendDone;
      if (wc.opcode == rdma::WcOpcode::Receive) kind = OpKind::ReceiveDone;
      if (wc.opcode == rdma::WcOpcode::RdmaRead) kind = OpKind::ReadDone;
      if (wc.opcode == rdma::WcOpcode::LocalInvalidate) kind = OpKind::InvalidateDone;
      log_.add({.kind = kind, .wr_id = wc.wr_id, .bytes = wc.byte_len, .ok = ok, .content = {}});
    }
    return count;
  }

 private:
  std::size_t next(std::span<rdma::WorkCompletion> completions) {
    const auto held = [this](const rdma::WorkCompletion& wc) { return hold && hold(wc); };
    std::size_t count = 0;
    for (std::size_t i = 0; i < held_.size() && count < completions.size();) {
      if (held(held_[i])) {
        ++i;
        continue;
      }
      completions[count++] = held_[i];
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    const std::size_t end = count + inner_->poll(completions.subspan(count));
    for (std::size_t i = count; i < end; ++i) {
      if (held(completions[i]))
        held_.push_back(completions[i]);
      else
        completions[count++] = completions[i];
    }
    return count;
  }

  std::vector<rdma::WorkCompletion> held_;
  std::unique_ptr<rdma::Device> inner_;
  LoggedConnectionManager cm_;
  OpLog& log_;
  bool remote_invalidation_;
};

}  // namespace sluice::conformance
