// SPDX-License-Identifier: Apache-2.0
#include "controlplane/locks/ranges.h"

#include <algorithm>

namespace sluice::locks {

void Ranges::free(const Range& range) {
  std::vector<Range> rest;
  for (const Range& one : all_) {
    if (!overlap(one, range)) {
      rest.push_back(one);
      continue;
    }
    if (one.first < range.first) rest.push_back({one.first, range.first - 1, one.exclusive});
    if (one.last > range.last) rest.push_back({range.last + 1, one.last, one.exclusive});
  }
  all_ = std::move(rest);
}

void Ranges::hold(const Range& range) {
  free(range);
  all_.push_back(range);
  std::sort(all_.begin(), all_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> merged;
  for (const Range& one : all_) {
    Range* const before = merged.empty() ? nullptr : &merged.back();
    if (before != nullptr && before->exclusive == one.exclusive && before->last + 1 == one.first)
      before->last = one.last;
    else
      merged.push_back(one);
  }
  all_ = std::move(merged);
}

bool Ranges::covers(const Range& range) const {
  std::uint64_t next = range.first;
  for (const Range& one : all_) {
    if (one.last < next || (range.exclusive && !one.exclusive)) continue;
    if (one.first > next) return false;
    if (one.last >= range.last) return true;
    next = one.last + 1;
  }
  return false;
}

bool Ranges::overlaps(const Range& range) const {
  return std::any_of(all_.begin(), all_.end(), [&](const Range& one) { return overlap(one, range); });
}

}  // namespace sluice::locks
