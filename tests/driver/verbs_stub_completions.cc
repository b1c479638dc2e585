// SPDX-License-Identifier: Apache-2.0
//
// Completions of the stub, and flushes of queue pairs in Error.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "tests/driver/verbs_stub.h"
#include "tests/driver/verbs_stub_device.h"

namespace sluice::rdma::conformance {

void VerbsStub::complete(const Posted& posted, ibv_wc_status status) {
  const auto pair = pairs_.find(posted.queue_pair);
  if (pair == pairs_.end()) return;
  ibv_wc wc{};
  wc.wr_id = posted.wr_id;
  wc.status = status;
  wc.qp_num = posted.queue_pair;
  if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR) wc.vendor_err = kVendorError;
  pair->second.sends->completions.push_back(wc);
}

void VerbsStub::complete_receive(Pair& pair, const Posted& receive, ibv_wc wc) {
  wc.wr_id = receive.wr_id;
  wc.qp_num = pair.qp.qp_base.qp_num;
  if (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR) wc.vendor_err = kVendorError;
  pair.receives->completions.push_back(wc);
}

void VerbsStub::find_peer() {
  const std::lock_guard lock(lock_);
  peer_gone_ = false;
  for (; !outstanding_.empty(); outstanding_.pop_front())
    if (outstanding_.front().signaled) complete(outstanding_.front(), IBV_WC_SUCCESS);
}

void VerbsStub::give_up() {
  const std::lock_guard lock(lock_);
  for (ibv_wc_status status = IBV_WC_RETRY_EXC_ERR; !outstanding_.empty(); status = IBV_WC_WR_FLUSH_ERR) {
    complete(outstanding_.front(), status);
    outstanding_.pop_front();
  }
}

void VerbsStub::move_to_error(Pair& pair) {
  if (pair.in_error) return;
  pair.in_error = true;
  if (pair.shared != nullptr && provider_.last_receive_event) {
    if (!delays_last_receives_) {
      add_event(IBV_EVENT_QP_LAST_WQE_REACHED, pair);
    } else {
      unreached_.insert(pair.qp.qp_base.qp_num);
      signal_event(pair.qp.qp_base.context);  // without an event
    }
  }
  switch (provider_.flush) {
    case Provider::Flush::AtOnce:
      return flush(pair);
    case Provider::Flush::AtEvents:
      unflushed_.insert(pair.qp.qp_base.qp_num);
      return add_event(IBV_EVENT_QP_FATAL, pair);
    case Provider::Flush::Never:
      return;
  }
}

void VerbsStub::flush(Pair& pair) {
  pair.flushes = true;
  const std::uint32_t number = pair.qp.qp_base.qp_num;
  std::erase_if(outstanding_, [&](const Posted& posted) {
    if (posted.queue_pair == number) complete(posted, IBV_WC_WR_FLUSH_ERR);
    return posted.queue_pair == number;
  });
  for (const Posted& posted : pair.waiting) complete(posted, IBV_WC_WR_FLUSH_ERR);
  pair.waiting.clear();
  for (const Posted& receive : pair.posted_receives) {
    ibv_wc wc{};
    wc.status = IBV_WC_WR_FLUSH_ERR;
    complete_receive(pair, receive, wc);
  }
  pair.posted_receives.clear();
}

int VerbsStub::poll(StubQueue& queue, int count, ibv_wc* into) {
  const int taken = take(queue, count, into);
  for (int i = 0; i < taken; ++i)
    if (provider_.poll_calls_kernel && into[i].status != IBV_WC_SUCCESS &&
        into[i].status != IBV_WC_WR_FLUSH_ERR)
      note("ibv_modify_qp");
  return taken;
}

int VerbsStub::take(StubQueue& queue, int count, ibv_wc* into) {
  const std::lock_guard lock(lock_);
  auto& completions = queue.completions;
  const auto taken = std::min(static_cast<std::size_t>(count), completions.size());
  std::copy_n(completions.begin(), taken, into);
  completions.erase(completions.begin(), completions.begin() + static_cast<std::ptrdiff_t>(taken));
  return static_cast<int>(taken);
}

}  // namespace sluice::rdma::conformance
