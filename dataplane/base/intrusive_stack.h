// SPDX-License-Identifier: Apache-2.0
//
// Last-in first-out store that links its elements. It holds free elements with the most recently used one,
// which is still in the cache, on top. Taking an element touches no cache line other than the element's. An
// element is in at most one stack. Single-threaded.
//
//   struct Slot { StackLink<Slot> link; };
//   IntrusiveStack<Slot, &Slot::link> free;
#pragma once

#include "dataplane/base/invariant.h"

namespace sluice {

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

template <typename T, StackLink<T> T::*Link>
class IntrusiveStack {
 public:
  IntrusiveStack() = default;
  IntrusiveStack(const IntrusiveStack&) = delete;
  IntrusiveStack& operator=(const IntrusiveStack&) = delete;

  bool empty() const noexcept { return top_ == nullptr; }
  /// Returns the top element. Requires a stack that is not empty.
  T& top() const noexcept { return *top_; }

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
    T& element = *top_;
    StackLink<T>& link = element.*Link;
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
