// SPDX-License-Identifier: Apache-2.0
//
// Queue and stack that link their elements: no allocation, and every operation except IntrusiveQueue::clear()
// takes constant time. Single-threaded.
#pragma once

#include "dataplane/base/invariant.h"

namespace sluice {

/// Link of an element in a queue. It is not copied with its element, because a copy is in no queue.
template <typename T>
class QueueLink {
 public:
  QueueLink() = default;
  QueueLink(const QueueLink&) noexcept {}
  // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): nothing is assigned
  QueueLink& operator=(const QueueLink&) noexcept { return *this; }

  /// Returns whether the element is in a queue.
  bool linked() const noexcept { return queue_ != nullptr; }

 private:
  template <typename U, QueueLink<U> U::*>
  friend class IntrusiveQueue;

  T* next_ = nullptr;
  T* previous_ = nullptr;
  void* queue_ = nullptr;  ///< queue that the element is in
};

/// First-in first-out queue. An element has one QueueLink per kind of queue and is in at most one queue of
/// that kind.
///
///   struct Slot { QueueLink<Slot> link; };
///   IntrusiveQueue<Slot, &Slot::link> waiting;
template <typename T, QueueLink<T> T::*Link>
class IntrusiveQueue {
 public:
  IntrusiveQueue() = default;
  IntrusiveQueue(const IntrusiveQueue&) = delete;
  IntrusiveQueue& operator=(const IntrusiveQueue&) = delete;

  bool empty() const noexcept { return head_ == nullptr; }
  T* front() const noexcept { return head_; }
  T* back() const noexcept { return tail_; }
  bool contains(const T& element) const noexcept { return (element.*Link).queue_ == this; }
  static T* next(const T& element) noexcept { return (element.*Link).next_; }

  /// Appends an element, which must be in no queue.
  void push_back(T& element) noexcept {
    if (!SLUICE_INVARIANT(!(element.*Link).linked(), list_membership)) return;
    place(element, tail_, nullptr);
    (tail_ != nullptr ? (tail_->*Link).next_ : head_) = &element;
    tail_ = &element;
  }

  /// Prepends an element, which must be in no queue.
  void push_front(T& element) noexcept {
    if (!SLUICE_INVARIANT(!(element.*Link).linked(), list_membership)) return;
    place(element, nullptr, head_);
    (head_ != nullptr ? (head_->*Link).previous_ : tail_) = &element;
    head_ = &element;
  }

  /// Removes and returns the first element; null if the queue is empty.
  T* pop_front() noexcept {
    T* const element = head_;
    if (element != nullptr) remove(*element);
    return element;
  }

  /// Removes an element, which must be in this queue.
  void remove(T& element) noexcept {
    if (!SLUICE_INVARIANT(contains(element), list_membership)) return;
    QueueLink<T>& link = element.*Link;
    SLUICE_INVARIANT_DEBUG(link.previous_ != nullptr || head_ == &element, list_membership);
    SLUICE_INVARIANT_DEBUG(link.next_ != nullptr || tail_ == &element, list_membership);
    (link.previous_ != nullptr ? (link.previous_->*Link).next_ : head_) = link.next_;
    (link.next_ != nullptr ? (link.next_->*Link).previous_ : tail_) = link.previous_;
    link.next_ = link.previous_ = nullptr;
    link.queue_ = nullptr;
  }

  /// Removes the element from its queue, whichever that is. No effect if it is in none.
  static void unlink(T& element) noexcept {
    if ((element.*Link).linked()) static_cast<IntrusiveQueue*>((element.*Link).queue_)->remove(element);
  }

  /// Removes all elements. Linear in the queue's length.
  void clear() noexcept {
    while (pop_front() != nullptr) {
    }
  }

 private:
  void place(T& element, T* previous, T* next) noexcept {
    SLUICE_INVARIANT_DEBUG((head_ == nullptr) == (tail_ == nullptr), list_membership);
    QueueLink<T>& link = element.*Link;
    link.previous_ = previous;
    link.next_ = next;
    link.queue_ = this;
  }

  T* head_ = nullptr;
  T* tail_ = nullptr;
};

/// Link of an element in a stack.
template <typename T>
class StackLink {
 public:
  StackLink() = default;
  StackLink(const StackLink&) = delete;
  StackLink& operator=(const StackLink&) = delete;

 private:
  template <typename U, StackLink<U> U::*>
  friend class IntrusiveStack;

  T* below_ = nullptr;
  bool in_stack_ = false;
};

/// Last-in first-out store. It holds free elements with the most recently used one, which is still in the
/// cache, on top. Taking an element touches no cache line other than the element's. An element is in at most
/// one stack.
///
///   struct Slot { StackLink<Slot> link; };
///   IntrusiveStack<Slot, &Slot::link> free;
template <typename T, StackLink<T> T::*Link>
class IntrusiveStack {
 public:
  IntrusiveStack() = default;
  IntrusiveStack(const IntrusiveStack&) = delete;
  IntrusiveStack& operator=(const IntrusiveStack&) = delete;

  bool empty() const noexcept { return top_ == nullptr; }
  /// Returns the top element. Requires a stack that is not empty.
  T& top() const noexcept {
    SLUICE_INVARIANT_DEBUG(!empty(), list_membership);
    return *top_;
  }

  /// Pushes an element. If it is in a stack already, an invariant fails and it stays where it is.
  void push(T& element) noexcept {
    StackLink<T>& link = element.*Link;
    if (!SLUICE_INVARIANT(!link.in_stack_, list_membership)) return;
    link.below_ = top_;
    link.in_stack_ = true;
    top_ = &element;
  }
  /// Removes and returns the top element. Requires a stack that is not empty.
  T& pop() noexcept {
    SLUICE_INVARIANT_DEBUG(!empty(), list_membership);
    T& element = *top_;
    StackLink<T>& link = element.*Link;
    SLUICE_INVARIANT_DEBUG(link.in_stack_, list_membership);
    top_ = link.below_;
    link.in_stack_ = false;
    return element;
  }
  /// Removes all elements. Linear in their number.
  void clear() noexcept {
    while (!empty()) pop();
  }

 private:
  T* top_ = nullptr;
};

}  // namespace sluice
