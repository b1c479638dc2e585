// SPDX-License-Identifier: Apache-2.0
//
// Last-in first-out store threaded through its elements: what is free, the most recently used (and so still in the cache)
// on top. Who takes an element touches no other cache line than the element's. An element is in at most one stack. One
// thread.
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
  /// Of a stack that is not empty.
  T& top() const noexcept { return *top_; }

  /// One that is in a stack already stays where it is.
  void push(T& element) noexcept {
    StackLink<T>& link = element.*Link;
    if (!SLUICE_INVARIANT(!link.in_stack_, list_membership)) return;
    link.below_ = top_;
    link.in_stack_ = true;
    top_ = &element;
  }
  /// Of a stack that is not empty.
  T& pop() noexcept {
    T& element = *top_;
    StackLink<T>& link = element.*Link;
    top_ = link.below_;
    link.in_stack_ = false;
    return element;
  }
  /// Linear in the elements.
  void clear() noexcept {
    while (!empty()) pop();
  }

 private:
  T* top_ = nullptr;
};

}  // namespace sluice
