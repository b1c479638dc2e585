// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/timer_heap.h"

namespace sluice::cm {

void TimerHeap::set(Timer& timer, std::uint64_t deadline_ns) {
  const bool was_set = timer.deadline_ns_ != 0;
  timer.deadline_ns_ = deadline_ns;
  if (!was_set) {
    if (deadline_ns == 0) return;
    heap_.push_back(&timer);
    timer.place_ = heap_.size() - 1;
    return move_up(timer.place_);
  }
  const std::size_t place = timer.place_;
  if (deadline_ns == 0) {
    Timer* const last = heap_.back();
    heap_.pop_back();
    if (last == &timer) return;
    put(place, last);
  }
  move_up(place);
  move_down(place);
}

void TimerHeap::put(std::size_t place, Timer* timer) {
  heap_[place] = timer;
  timer->place_ = place;
}

void TimerHeap::move_up(std::size_t place) {
  Timer* const timer = heap_[place];
  for (; place > 0; place = (place - 1) / 2) {
    Timer* const parent = heap_[(place - 1) / 2];
    if (parent->deadline_ns_ <= timer->deadline_ns_) break;
    put(place, parent);
  }
  put(place, timer);
}

void TimerHeap::move_down(std::size_t place) {
  Timer* const timer = heap_[place];
  for (std::size_t child = 2 * place + 1; child < heap_.size(); child = 2 * place + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1]->deadline_ns_ < heap_[child]->deadline_ns_) ++child;
    if (timer->deadline_ns_ <= heap_[child]->deadline_ns_) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, timer);
}

}  // namespace sluice::cm
