// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/reactor/fake_device.h"

#include <algorithm>

namespace sluice::reactor {

FakeQueuePair::~FakeQueuePair() {
  std::erase(device_.queue_pairs, this);
}

std::size_t FakeQueuePair::post_send(std::span<const rdma::SendWr> wrs) noexcept {
  for (const rdma::SendWr& wr : wrs)
    if ((wr.flags & rdma::kSignaled) != 0 || state_ == State::Error)
      device_.completions.push_back(
          {.wr_id = wr.wr_id,
           .qp = number(),
           .status = state_ == State::Error ? rdma::WcStatus::WrFlushError : rdma::WcStatus::Success,
           .opcode = rdma::completion_opcode(wr.opcode)});
  return wrs.size();
}

std::size_t FakeQueuePair::post_recv(std::span<const rdma::RecvWr> wrs) noexcept {
  for (const rdma::RecvWr& wr : wrs) posted_.push_back(wr.wr_id);
  if (state_ == State::Error) to_error();
  return wrs.size();
}

void FakeQueuePair::to_error() noexcept {
  state_ = State::Error;
  for (const std::uint64_t wr_id : posted_)
    device_.completions.push_back({.wr_id = wr_id,
                                   .qp = number(),
                                   .status = rdma::WcStatus::WrFlushError,
                                   .opcode = rdma::WcOpcode::Receive});
  posted_.clear();
}

bool FakeQueuePair::connect(const rdma::RcAttributes& attributes) noexcept {
  if (!device_.connects) return false;
  connected = attributes;
  if (!device_.connects_later) finish_connect();
  return true;
}

rdma::MemoryRegion FakeDevice::allocate_memory(std::size_t bytes) {
  memory_.push_back(std::make_unique<std::byte[]>(bytes));
  return {{memory_.back().get(), bytes}, rdma::Lkey{1}};
}

Owned<rdma::QueuePair> FakeDevice::create_queue_pair(const rdma::QueuePairLimits&) {
  if (!has_queue_pairs) throw SetupError("No queue pair is left.");
  auto made = std::make_unique<FakeQueuePair>(*this, next_number_++);
  queue_pairs.push_back(made.get());
  return made;
}

std::size_t FakeDevice::receive_datagrams(std::span<rdma::Datagram> datagrams) noexcept {
  const std::size_t count = std::min(datagrams.size(), received.size());
  std::copy_n(received.begin(), count, datagrams.begin());
  received.erase(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

bool FakeDevice::send_datagram(const rdma::Datagram& datagram) noexcept {
  sent.push_back(datagram);
  return true;
}

std::size_t FakeDevice::read_statistics(std::span<std::uint64_t> values) const noexcept {
  std::copy(statistics.begin(), statistics.end(), values.begin());
  return statistics.size();
}

std::size_t FakeDevice::poll(std::span<rdma::WorkCompletion> to) noexcept {
  if (on_poll) on_poll(moved_);
  const std::size_t count = std::min(to.size(), completions.size());
  std::copy_n(completions.begin(), count, to.begin());
  completions.erase(completions.begin(), completions.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

}  // namespace sluice::reactor
