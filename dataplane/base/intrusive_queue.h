// SPDX-License-Identifier: Apache-2.0
//
// FIFO queue linked through a member of its elements: no allocation. An element is in at most one queue per
// link member, and outlives its membership; the queue owns nothing. Single-threaded.
#pragma once

namespace sluice {

template <typename T, T* T::*Next>
class IntrusiveQueue {
 public:
  bool empty() const noexcept { return head_ == nullptr; }
  T* front() const noexcept { return head_; }

  void push_back(T& element) noexcept {
    element.*Next = nullptr;
    (tail_ != nullptr ? tail_->*Next : head_) = &element;
    tail_ = &element;
  }

  void push_front(T& element) noexcept {
    element.*Next = head_;
    head_ = &element;
    if (tail_ == nullptr) tail_ = &element;
  }

  T* pop_front() noexcept {
    T* element = head_;
    if (element == nullptr) return nullptr;
    head_ = element->*Next;
    if (head_ == nullptr) tail_ = nullptr;
    element->*Next = nullptr;
    return element;
  }

  /// Linear in the queue's length, which its owner bounds. False when the element is not queued.
  bool remove(T& element) noexcept {
    T* previous = nullptr;
    for (T* at = head_; at != nullptr; previous = at, at = at->*Next) {
      if (at != &element) continue;
      (previous != nullptr ? previous->*Next : head_) = at->*Next;
      if (tail_ == at) tail_ = previous;
      at->*Next = nullptr;
      return true;
    }
    return false;
  }

 private:
  T* head_ = nullptr;
  T* tail_ = nullptr;
};

}  // namespace sluice
