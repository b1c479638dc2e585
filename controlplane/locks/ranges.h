// SPDX-License-Identifier: Apache-2.0
//
// Byte ranges of a file that one owner has locked. They are split and merged according to the POSIX rules for
// fcntl(): a new lock replaces the owner's locks in its range, and adjacent ranges of one kind are merged.
// Value types; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::locks {

inline constexpr std::uint64_t kEndOfFile = ~std::uint64_t{0};

struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = kEndOfFile;  ///< inclusive
  bool exclusive = false;
  bool operator==(const Range&) const = default;
};

/// Returns the range of a lock. A `length` of zero or beyond the maximum offset extends to the end of the
/// file.
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
  /// Frees a range of both kinds.
  void free(const Range& range);
  /// Returns true if the entire range is held, in its kind or exclusively.
  bool covers(const Range& range) const;
  bool overlaps(const Range& range) const;
  /// Returns the ranges in ascending order, without overlaps.
  const std::vector<Range>& all() const { return all_; }

 private:
  std::vector<Range> all_;
};

}  // namespace sluice::locks
