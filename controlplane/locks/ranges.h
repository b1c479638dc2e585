// SPDX-License-Identifier: Apache-2.0
//
// The byte ranges of a file that one owner has locked, split and merged as POSIX says for fcntl(): a new lock replaces
// what the owner had there, and neighbours of one kind are one. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::locks {

inline constexpr std::uint64_t kEndOfFile = ~std::uint64_t{0};

struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = kEndOfFile;  ///< itself included
  bool exclusive = false;
  bool operator==(const Range&) const = default;
};

/// `length` zero, or beyond what there can be: to the end.
inline Range range_of(std::uint64_t offset, std::uint64_t length, bool exclusive) {
  const bool to_end = length == 0 || length - 1 > kEndOfFile - offset;
  return {offset, to_end ? kEndOfFile : offset + (length - 1), exclusive};
}

inline bool overlap(const Range& a, const Range& b) {
  return a.first <= b.last && b.first <= a.last;
}

class Ranges {
 public:
  void hold(const Range& range);
  /// Of both kinds.
  void free(const Range& range);
  /// Whether all of it is held, in its kind or exclusively.
  bool covers(const Range& range) const;
  bool overlaps(const Range& range) const;
  /// In order, without overlaps.
  const std::vector<Range>& all() const { return all_; }

 private:
  std::vector<Range> all_;
};

}  // namespace sluice::locks
