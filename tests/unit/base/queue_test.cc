// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/intrusive_lists.h"

namespace sluice {
namespace {

struct Element {
  int value = 0;
  QueueLink<Element> link;
};
using Queue = IntrusiveQueue<Element, &Element::link>;

std::vector<const Element*> in(const Queue& queue) {
  std::vector<const Element*> elements;
  for (const Element* at = queue.front(); at != nullptr; at = Queue::next(*at)) elements.push_back(at);
  return elements;
}

/// Compares the queue with a vector. Elements are also removed from the middle.
TEST(IntrusiveQueue, is_a_queue_from_which_any_element_can_be_taken) {
  std::vector<Element> elements(16);
  Queue queue;
  std::vector<const Element*> model;
  std::mt19937 random(1);
  for (int step = 0; step < 20000; ++step) {
    Element& element = elements[random() % elements.size()];
    const auto at = std::find(model.begin(), model.end(), &element);
    ASSERT_EQ(queue.contains(element), at != model.end());
    if (at != model.end()) {
      model.erase(at);
      if (random() % 2 == 0)
        queue.remove(element);
      else
        Queue::unlink(element);
    } else if (random() % 2 == 0) {
      model.push_back(&element);
      queue.push_back(element);
    } else {
      model.insert(model.begin(), &element);
      queue.push_front(element);
    }
    if (random() % 8 == 0) {
      const Element* const expected = model.empty() ? nullptr : model.front();
      ASSERT_EQ(queue.pop_front(), expected);
      if (expected != nullptr) model.erase(model.begin());
    }
    ASSERT_EQ(in(queue), model);
    ASSERT_EQ(queue.back(), model.empty() ? nullptr : model.back());
    ASSERT_EQ(element.link.linked(), queue.contains(element));
  }
  queue.clear();
  EXPECT_TRUE(queue.empty());
  for (const Element& element : elements) EXPECT_FALSE(element.link.linked());
}

TEST(IntrusiveQueue, unlink_finds_the_queue_that_the_element_is_in) {
  Element element;
  Queue first;
  Queue second;
  Queue::unlink(element);
  second.push_back(element);
  EXPECT_FALSE(first.contains(element));
  Queue::unlink(element);
  EXPECT_TRUE(second.empty());
}

TEST(IntrusiveQueue, an_element_is_not_put_into_two_queues_or_taken_out_of_a_wrong_one) {
  if (kAbortOnInvariant) GTEST_SKIP() << "aborts in this build";
  Element element;
  Queue first;
  Queue second;
  first.push_back(element);
  const auto& failures = invariant_failures()[static_cast<std::size_t>(Invariant::list_membership)];
  const std::uint64_t before = failures;
  second.push_back(element);
  second.push_front(element);
  second.remove(element);
  EXPECT_EQ(failures, before + 3);
  EXPECT_TRUE(second.empty());
  EXPECT_EQ(first.front(), &element);
}

TEST(FixedStack, gives_back_the_latest_first_and_takes_no_more_than_it_has_room_for) {
  FixedStack<int> stack(2);
  stack.push(1);
  stack.push(2);
  EXPECT_TRUE(stack.full());
  if (!kAbortOnInvariant) {
    const auto& failures = invariant_failures()[static_cast<std::size_t>(Invariant::pool_balance)];
    const std::uint64_t before = failures;
    stack.push(3);
    EXPECT_EQ(failures, before + 1);
  }
  EXPECT_EQ(stack.top(), 2);
  EXPECT_EQ(stack.pop(), 2);
  EXPECT_EQ(stack.pop(), 1);
  EXPECT_TRUE(stack.empty());
}

struct Plate {
  StackLink<Plate> link;
};

TEST(IntrusiveStack, gives_back_the_latest_first_and_takes_none_twice) {
  Plate first;
  Plate second;
  IntrusiveStack<Plate, &Plate::link> stack;
  stack.push(first);
  stack.push(second);
  if (!kAbortOnInvariant) {
    const auto& failures = invariant_failures()[static_cast<std::size_t>(Invariant::list_membership)];
    const std::uint64_t before = failures;
    stack.push(first);
    EXPECT_EQ(failures, before + 1);
  }
  EXPECT_EQ(&stack.top(), &second);
  EXPECT_EQ(&stack.pop(), &second);
  EXPECT_EQ(&stack.pop(), &first);
  EXPECT_TRUE(stack.empty());
  stack.push(first);
  stack.push(second);
  stack.clear();
  EXPECT_TRUE(stack.empty());
  stack.push(second);
  EXPECT_EQ(&stack.top(), &second);
}

TEST(ObjectArray, its_objects_stay_where_they_were_made_and_go_the_latest_first) {
  struct alignas(kCacheLine) Object {
    Object(std::vector<int>& log, int number) : gone(log), name(number) {}
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
    ~Object() { gone.push_back(name); }
    std::vector<int>& gone;
    int name;
    std::array<std::byte, kCacheLine> more{};  // an even number of cache lines
  };
  std::vector<int> gone;
  {
    ObjectArray<Object> objects(3);
    Object& first = objects.emplace_back(gone, 1);
    Object& second = objects.emplace_back(gone, 2);
    EXPECT_EQ(objects.size(), 2u);
    EXPECT_EQ(&objects[0], &first);
    EXPECT_EQ(&objects.base()[1], &second);
    const auto apart = reinterpret_cast<std::byte*>(&second) - reinterpret_cast<std::byte*>(&first);
    EXPECT_EQ(apart / static_cast<std::ptrdiff_t>(kCacheLine) % 2, 1);
  }
  EXPECT_EQ(gone, (std::vector{2, 1}));
}

}  // namespace
}  // namespace sluice
