// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/probes.h"

#include "pmd/verbs/ports.h"

namespace sluice::card_check {

ibv_wc_status read_status(Loop& loop, std::uint64_t wr_id, std::ptrdiff_t at, std::uint32_t bytes,
                          std::uint32_t rkey) {
  constexpr std::size_t kTarget = 1u << 17;
  ibv_sge into = loop.sge(kTarget, bytes);
  const ibv_send_wr wr = read_of(wr_id, {&into, 1}, loop.address(0) + static_cast<std::uint64_t>(at), rkey);
  return loop.post(loop.right(), wr) == 0 ? loop.await(wr_id).status : IBV_WC_GENERAL_ERR;
}

bool holds_window_bounds() {
  constexpr std::size_t kStart = 8192;
  constexpr std::uint32_t kBytes = 1000;
  struct Access {
    std::ptrdiff_t at;
    std::uint32_t bytes;
  };
  for (const Access access :
       {Access{kStart - 1, 1}, Access{kStart + 1, kBytes}, Access{kStart, kBytes + 1}}) {
    Loop loop({.windows = true});  // a refused access ends the queue pairs
    ibv_mw* const window = loop.allocate_window();
    const std::uint32_t rkey =
        window != nullptr ? loop.bind(window, kStart, kBytes, IBV_ACCESS_REMOTE_READ) : 0;
    if (rkey == 0) throw LoopError("A window cannot be bound.");
    if (read_status(loop, 1, access.at, access.bytes, rkey) == IBV_WC_SUCCESS) return false;
  }
  return true;
}

ibv_wc_status status_of_too_long() {
  Loop loop({});
  loop.receive(loop.right(), 2, loop.sge(4096, 63));
  return loop.send(1, 64) == 0 ? loop.await(1).status : IBV_WC_GENERAL_ERR;
}

ibv_wc_status status_of_local_error() {
  Loop loop({});
  ibv_sge outside = loop.sge(0, 64);
  outside.lkey ^= 0xDEAD00;
  const ibv_send_wr wr = request_of(1, IBV_WR_SEND, {&outside, 1});
  return loop.post(loop.left(), wr) == 0 ? loop.await(1).status : IBV_WC_GENERAL_ERR;
}

bool has_shared_receives() {
  const Context context = open_subject();
  return attributes_of(context.get()).max_srq > 0;
}

PeerAddress address_of_gid(std::uint32_t index) {
  const Context context = open_subject();
  return rdma::verbs::address_of(gid_at(context.get(), index));
}

}  // namespace sluice::card_check
