// SPDX-License-Identifier: Apache-2.0
//
// Algorithms that headers and the message path use, without <algorithm>, which is one of the largest headers
// of the standard library. Pure functions; any thread.
#pragma once

namespace sluice {

template <typename T>
constexpr T smaller_of(T a, T b) noexcept {
  return b < a ? b : a;
}
template <typename T>
constexpr T larger_of(T a, T b) noexcept {
  return a < b ? b : a;
}
/// Returns the value from `least` to `most` that is nearest to `value`. Requires least <= most.
template <typename T>
constexpr T bounded(T value, T least, T most) noexcept {
  return smaller_of(larger_of(value, least), most);
}

template <typename Range, typename T>
constexpr bool has_element(const Range& range, const T& value) noexcept {
  for (const auto& element : range)
    if (element == value) return true;
  return false;
}
/// Returns true if `matches` returns true for any element.
template <typename Range, typename Predicate>
constexpr bool has_match(const Range& range, const Predicate& matches) {
  for (const auto& element : range)
    if (matches(element)) return true;
  return false;
}
/// Returns the first element for which `matches` returns true, or null.
template <typename Range, typename Predicate>
constexpr auto* first_match(Range& range, const Predicate& matches) {
  for (auto& element : range)
    if (matches(element)) return &element;
  return static_cast<decltype(&*range.begin())>(nullptr);
}

}  // namespace sluice
