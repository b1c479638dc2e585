// SPDX-License-Identifier: Apache-2.0
#include "tests/examples/copy_driver/copy_driver.h"

#include <algorithm>
#include <cstring>

namespace sluice::examples {

using rdma::SendOpcode;
using rdma::WcStatus;

namespace {

std::uint32_t index_of(rdma::QueuePairNumber number) noexcept {
  return static_cast<std::uint32_t>(number) % kMaxQueuePairs;
}

}  // namespace

// --- Queue pair: setup and posting

CopyQueuePair::CopyQueuePair(CopyDevice& device, rdma::QueuePairNumber number,
                             const rdma::QueuePairLimits& limits)
    : device_(device),
      number_(number),
      rnr_retry_(limits.rnr_retry),
      sends_(limits.send_depth),
      receives_(limits.recv_depth),
      received_(limits.recv_depth) {}

CopyQueuePair::~CopyQueuePair() {
  device_.forget(*this);
}

bool CopyQueuePair::connect(const rdma::RcAttributes& attributes) noexcept {
  if (state_ != State::Init || attributes.remote != device_.peer_->address_) return false;
  peer_ = attributes.remote_qp;
  state_ = State::ReadyToSend;
  return true;
}

std::size_t CopyQueuePair::post_send(std::span<const rdma::SendWr> wrs) noexcept {
  if (state_ == State::Init) return 0;
  std::size_t posted = 0;
  for (; posted < wrs.size() && !sends_.full(); ++posted) {
    const rdma::SendWr& wr = wrs[posted];
    Posted entry{.wr = wr};
    entry.wr.sges = {};  // the caller's array is valid during this function only
    entry.piece_count = static_cast<std::uint32_t>(std::min<std::size_t>(wr.sges.size(), kMaxSge));
    std::copy_n(wr.sges.begin(), entry.piece_count, entry.pieces.begin());
    entry.bytes = static_cast<std::uint32_t>(rdma::total_bytes(entry.sges()));
    sends_.push_back(entry);
  }
  return posted;
}

/// A Receive occupies its entry until its completion has been reported.
std::size_t CopyQueuePair::post_recv(std::span<const rdma::RecvWr> wrs) noexcept {
  std::size_t posted = 0;
  for (; posted < wrs.size() && receives_.size() + received_.size() < receives_.capacity(); ++posted)
    receives_.push_back(wrs[posted]);
  return posted;
}

/// Binds immediately, so later work requests find the window bound. The low bits of the rkey are the window's
/// number, and its other bits are unpredictable.
std::optional<rdma::Rkey> CopyQueuePair::bind_window(rdma::MemoryWindow window, std::span<std::byte> bytes,
                                                     rdma::Lkey lkey, rdma::AccessFlags access) noexcept {
  if (state_ != State::ReadyToSend || window.number >= device_.windows_.size()) return std::nullopt;
  CopyDevice::Window& entry = device_.windows_[window.number];
  const rdma::Sge all{bytes.data(), static_cast<std::uint32_t>(bytes.size()), lkey};
  if (entry.rkey != rdma::Rkey{} || !device_.regions_.covers(all)) return std::nullopt;
  auto tag = static_cast<std::uint32_t>(device_.tags_.next()) & ~(kMaxWindows - 1);
  if (tag == 0) tag = kMaxWindows;  // key zero means unbound
  entry = {bytes, rdma::Rkey{tag | window.number}, access, number_};
  return entry.rkey;
}

// --- Queue pair: work

std::size_t CopyQueuePair::poll(std::span<rdma::WorkCompletion> completions, bool& moved) noexcept {
  std::size_t count = received_.pop_front(completions);
  std::uint32_t budget = kCopyBytesPerPoll;
  for (std::uint32_t i = 0; i < kRequestsPerPoll && state_ == State::ReadyToSend; ++i) {
    if (sends_.empty() || count == completions.size()) return count;
    Posted& oldest = sends_.front();
    auto status = WcStatus::Success;
    const Progress progress = perform(oldest, budget, status);
    if (progress == Progress::Advanced) moved = true;
    if (progress == Progress::Advanced || progress == Progress::Waits) return count;
    if (progress == Progress::Failed) state_ = State::Error;
    if (progress == Progress::Failed || (oldest.wr.flags & rdma::kSignaled) != 0)
      completions[count++] = {.wr_id = oldest.wr.wr_id,
                              .byte_len = oldest.bytes,
                              .qp = number_,
                              .status = status,
                              .opcode = rdma::completion_opcode(oldest.wr.opcode)};
    else
      moved = true;
    sends_.pop_front();
  }
  return state_ == State::Error ? count + flush(completions.subspan(count)) : count;
}

/// Work requests are performed one after the other. So RDMA Reads never outnumber their depth, and kFence has
/// nothing to wait for.
CopyQueuePair::Progress CopyQueuePair::perform(Posted& posted, std::uint32_t& budget,
                                               WcStatus& failure) noexcept {
  const auto fail = [&](WcStatus status) {
    failure = status;
    return Progress::Failed;
  };
  if (posted.wr.opcode == SendOpcode::LocalInvalidate) {
    CopyDevice::Window* const window = device_.bound(posted.wr.rkey, number_);
    if (window == nullptr) return fail(WcStatus::BindError);
    *window = {};
    return Progress::Done;
  }
  for (const rdma::Sge& sge : posted.sges())
    if (sge.length > 0 && !device_.regions_.covers(sge)) return fail(WcStatus::LocalProtectionError);
  CopyQueuePair* const peer = device_.peer_->find(peer_);
  if (peer == nullptr || peer->state_ == State::Error) return fail(WcStatus::RetryExceeded);
  if (peer->state_ == State::Init) return Progress::Waits;
  switch (posted.wr.opcode) {
    case SendOpcode::Send:
    case SendOpcode::SendWithInvalidate:
      return send(posted, *peer, failure);
    case SendOpcode::RdmaRead:
    case SendOpcode::RdmaWrite:
      return transfer(posted, *peer, budget, failure);
    default:
      return fail(WcStatus::RemoteInvalidRequest);  // limits() excludes immediate data
  }
}

CopyQueuePair::Progress CopyQueuePair::send(Posted& posted, CopyQueuePair& peer, WcStatus& failure) noexcept {
  if (peer.receives_.empty()) return wait_for_receive(failure);
  rnr_polls_ = 0;
  failure = peer.receive(posted);
  return failure == WcStatus::Success ? Progress::Done : Progress::Failed;
}

CopyQueuePair::Progress CopyQueuePair::wait_for_receive(WcStatus& failure) noexcept {
  constexpr std::uint8_t kUnlimited = 7;
  if (rnr_retry_ == kUnlimited || ++rnr_polls_ < (rnr_retry_ + 1u) * kPollsPerRnrRetry)
    return Progress::Waits;
  failure = WcStatus::RnrRetryExceeded;
  return Progress::Failed;
}

/// Receives a Send of the peer, and returns the status of the Send. Both ends enter State::Error unless it is
/// Success.
WcStatus CopyQueuePair::receive(const Posted& posted) noexcept {
  const rdma::RecvWr into = receives_.pop_front();
  rdma::WorkCompletion done{
      .wr_id = into.wr_id, .byte_len = posted.bytes, .qp = number_, .opcode = rdma::WcOpcode::Receive};
  auto answer = WcStatus::Success;
  if (posted.bytes > into.sge.length || posted.bytes > kMaxSendBytes) {
    done.status = WcStatus::LocalLengthError;
    answer = WcStatus::RemoteInvalidRequest;
  } else if (!device_.regions_.covers(into.sge)) {
    done.status = WcStatus::LocalProtectionError;
    answer = WcStatus::RemoteOperationError;
  } else if (posted.wr.opcode == SendOpcode::SendWithInvalidate) {
    CopyDevice::Window* const window = device_.bound(posted.wr.rkey, number_);
    if (window == nullptr) {
      done.status = WcStatus::WrFlushError;
      answer = WcStatus::RemoteAccessError;
    } else {
      *window = {};
      done.remote_invalidate = true;
      done.rkey = posted.wr.rkey;
    }
  }
  received_.push_back(done);
  if (answer != WcStatus::Success) {
    state_ = State::Error;
    return answer;
  }
  heard_ = true;
  std::byte* to = into.sge.address;
  for (const rdma::Sge& sge : posted.sges()) {
    if (sge.length > 0) std::memcpy(to, sge.address, sge.length);
    to += sge.length;
  }
  return answer;
}

/// Copies a part of an RDMA Read or Write. The window is looked up for each part, because the peer may
/// invalidate it in between.
CopyQueuePair::Progress CopyQueuePair::transfer(Posted& posted, CopyQueuePair& peer, std::uint32_t& budget,
                                                WcStatus& failure) noexcept {
  if (posted.bytes == 0) return Progress::Done;  // neither key nor address counts (9.7.4.1.6)
  const bool reads = posted.wr.opcode == SendOpcode::RdmaRead;
  const CopyDevice::Window* const window = peer.device_.bound(posted.wr.rkey, peer.number_);
  const std::uint64_t base = window == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(window->bytes.data());
  const std::uint64_t offset = posted.wr.remote_address - base;
  if (window == nullptr || (window->access & (reads ? rdma::kRemoteRead : rdma::kRemoteWrite)) == 0 ||
      posted.wr.remote_address < base || offset > window->bytes.size() ||
      posted.bytes > window->bytes.size() - offset) {
    peer.state_ = State::Error;
    failure = WcStatus::RemoteAccessError;
    return Progress::Failed;
  }
  std::byte* const remote = window->bytes.data() + offset;
  std::uint32_t start = 0;  // of the piece in the transfer
  for (const rdma::Sge& sge : posted.sges()) {
    const std::uint32_t end = start + sge.length;
    if (posted.copied < end) {
      const std::uint32_t bytes = std::min(end - posted.copied, budget);
      std::byte* const local = sge.address + (posted.copied - start);
      std::memcpy(reads ? local : remote + posted.copied, reads ? remote + posted.copied : local, bytes);
      posted.copied += bytes;
      budget -= bytes;
    }
    start = end;
  }
  return posted.copied == posted.bytes ? Progress::Done : Progress::Advanced;
}

/// Completes outstanding requests of each queue in posting order. A peer has no access to memory since the
/// state is Error.
std::size_t CopyQueuePair::flush(std::span<rdma::WorkCompletion> completions) noexcept {
  std::size_t count = received_.pop_front(completions);
  const std::size_t most = std::min<std::size_t>(completions.size(), kRequestsPerPoll);
  while (count < most && !(sends_.empty() && receives_.empty())) {
    rdma::WorkCompletion& wc = completions[count++];
    wc = {.qp = number_, .status = WcStatus::WrFlushError, .opcode = rdma::WcOpcode::Receive};
    if (sends_.empty()) {
      wc.wr_id = receives_.pop_front().wr_id;
    } else {
      const Posted flushed = sends_.pop_front();
      wc.wr_id = flushed.wr.wr_id;
      wc.opcode = rdma::completion_opcode(flushed.wr.opcode);
    }
  }
  return count;
}

// --- Device

CopyDevice::CopyDevice(std::string name, std::uint8_t host)
    : name_(std::move(name)), address_(PeerAddress::from_ipv4(192, 0, 2, host)) {}

rdma::DeviceLimits CopyDevice::limits() const noexcept {
  return {.max_queue_pairs = kMaxQueuePairs,
          .max_send_sge = kMaxSge,
          .max_read_sge = kMaxSge,
          .max_windows = kMaxWindows,
          .max_message_bytes = 1u << 30,
          .max_send_bytes = kMaxSendBytes,
          .immediate_data = false,
          .remote_invalidation = true};
}

rdma::MemoryWindow CopyDevice::allocate_window() {
  if (windows_.size() == kMaxWindows)
    throw SetupError("Device " + name_ + " has no more than " + std::to_string(kMaxWindows) +
                     " memory windows. Configure fewer connections or calls.");
  windows_.emplace_back();
  return {static_cast<std::uint32_t>(windows_.size() - 1)};
}

/// A number is not used again until 2^16 further queue pairs have been created at its index.
Owned<rdma::QueuePair> CopyDevice::create_queue_pair(const rdma::QueuePairLimits& limits) {
  const auto unused = std::find(queue_pairs_.begin(), queue_pairs_.end(), nullptr);
  if (unused == queue_pairs_.end())
    throw SetupError("Device " + name_ + " has no more than " + std::to_string(kMaxQueuePairs) +
                     " queue pairs. Configure fewer connections.");
  const std::uint32_t generation = ++created_ & 0xFFFF;
  const auto index = static_cast<std::uint32_t>(unused - queue_pairs_.begin());
  const auto number = static_cast<rdma::QueuePairNumber>((generation + 1) * kMaxQueuePairs + index);
  auto queue_pair = make_owned<CopyQueuePair>(*this, number, limits);
  *unused = queue_pair.get();
  return queue_pair;
}

CopyQueuePair* CopyDevice::find(rdma::QueuePairNumber number) const noexcept {
  CopyQueuePair* const at = queue_pairs_[index_of(number)];
  return at != nullptr && at->number() == number ? at : nullptr;
}

CopyDevice::Window* CopyDevice::bound(rdma::Rkey rkey, rdma::QueuePairNumber owner) noexcept {
  const std::uint32_t number = static_cast<std::uint32_t>(rkey) & (kMaxWindows - 1);
  if (rkey == rdma::Rkey{} || number >= windows_.size()) return nullptr;
  Window& window = windows_[number];
  return window.rkey == rkey && window.owner == owner ? &window : nullptr;
}

/// Removes a queue pair that is being destroyed, and unbinds its windows.
void CopyDevice::forget(CopyQueuePair& queue_pair) noexcept {
  queue_pairs_[index_of(queue_pair.number())] = nullptr;
  for (Window& window : windows_)
    if (window.owner == queue_pair.number()) window = {};
}

bool CopyDevice::send_datagram(const rdma::Datagram& datagram) noexcept {
  if (datagram.remote != peer_->address_) return false;
  rdma::Datagram arrived = datagram;
  arrived.local = peer_->address_;
  arrived.remote = address_;
  return peer_->datagrams_.push_back(arrived);
}

std::size_t CopyDevice::poll(std::span<rdma::WorkCompletion> completions) noexcept {
  moved_ = false;
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < kMaxQueuePairs && count < completions.size(); ++i)
    if (CopyQueuePair* const at = queue_pairs_[(next_polled_ + i) % kMaxQueuePairs])
      count += at->poll(completions.subspan(count), moved_);
  next_polled_ = (next_polled_ + 1) % kMaxQueuePairs;
  return count;
}

}  // namespace sluice::examples
