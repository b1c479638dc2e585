// SPDX-License-Identifier: Apache-2.0
//
// The part of VerbsDevice that runs on another thread: it checks for asynchronous events, and whether the
// device was removed or has come back. It only stores a request, which the reactor handles in its next
// poll().
#include <poll.h>
#include <unistd.h>

#include "pmd/verbs/device.h"
#include "pmd/verbs/ports.h"

namespace sluice::rdma::verbs {

void VerbsDevice::request(Request wanted) noexcept {
  // Detach overrides every other request, which it makes meaningless.
  Request known = request_.load(std::memory_order_relaxed);
  while (known != Request::Detach &&
         !request_.compare_exchange_weak(known, wanted, std::memory_order_release)) {
  }
}

/// On removal the kernel deletes the device node first, and then waits until no process has it open.
bool VerbsDevice::is_present() const noexcept {
  return ::access(node_path_.c_str(), F_OK) == 0;
}

void VerbsDevice::look() noexcept {
  const std::unique_lock lock(context_lock_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  if (context_ == nullptr) {
    ibv_context* const found = open_by_name(config_.device, config_.port);
    if (found == nullptr) return;
    if (usable(found, config_.port)) request(Request::Attach);
    ibv_close_device(found);
    return;
  }
  for (std::size_t i = 0; i < kEventsPerLook; ++i) {
    pollfd ready{.fd = context_->async_fd, .events = POLLIN, .revents = 0};
    ibv_async_event event;
    if (::poll(&ready, 1, 0) <= 0 || ibv_get_async_event(context_, &event) != 0) break;
    on_event(event);
    ibv_ack_async_event(&event);
  }
  if (!is_present()) request(Request::Detach);
}

void VerbsDevice::on_event(const ibv_async_event& event) noexcept {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      ++queue_pair_events_;
      // The queue pair is not destroyed before its event is acknowledged.
      for (std::size_t i = 0; i < numbers_.size(); ++i)
        if (numbers_[i].load(std::memory_order_relaxed) == event.element.qp->qp_num)
          ended_[i].store(event.element.qp->qp_num, std::memory_order_relaxed);
      return request(Request::TakeEvents);
    case IBV_EVENT_CQ_ERR:  // unknown which queue pairs are affected: restart all
      ++overruns_;
      return request(Request::Detach);
    case IBV_EVENT_GID_CHANGE:
      // While there is none, requests of connections go on from the address of before, and fail.
      changed_addresses_ = addresses_of(gids_of(context_), config_.port);
      return request(Request::TakeEvents);
    case IBV_EVENT_SRQ_ERR:  // all queue pairs share it
      ++shared_receive_errors_;
      return request(Request::Detach);
    case IBV_EVENT_DEVICE_FATAL:
      return request(Request::Detach);
    case IBV_EVENT_PORT_ERR:
      if (event.element.port_num != config_.port) return;
      ++port_down_;
      return condition_.store(Condition::PortDown, std::memory_order_relaxed);
    case IBV_EVENT_PORT_ACTIVE:
      if (event.element.port_num != config_.port) return;
      ++port_up_;
      return condition_.store(Condition::Up, std::memory_order_relaxed);
    default:
      return;
  }
}

}  // namespace sluice::rdma::verbs
