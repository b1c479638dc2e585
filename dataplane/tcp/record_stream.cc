// SPDX-License-Identifier: Apache-2.0
#include "dataplane/tcp/record_stream.h"

#include <cstring>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::tcp {
namespace {

constexpr std::uint32_t kLastFragment = 1u << 31;

}  // namespace

std::span<std::byte> RecordStream::room() noexcept {
  if (awaits_all_of_room()) return {memory_ + joined_, fragment_left_};
  if (begin_ == filled_ || filled_ == buffer_.size() || begin_ > buffer_.size() / 2) compact();
  return buffer_.subspan(filled_);
}

void RecordStream::received(std::size_t bytes) noexcept {
  if (awaits_all_of_room()) {
    joined_ += bytes;
    fragment_left_ -= bytes;
  } else {
    filled_ += bytes;
  }
}

/// Moves the record to the front of the buffer, and the bytes that were not parsed behind it.
void RecordStream::compact() noexcept {
  const std::size_t kept = memory_ != nullptr || skipping_ ? 0 : joined_;
  const std::size_t moved = unread();
  if (kept > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, kept);
  if (moved > 0) std::memmove(buffer_.data() + kept, buffer_.data() + at_, moved);
  begin_ = 0;
  at_ = kept;
  filled_ = kept + moved;
}

/// Reads a record mark. The first words of a record are moved up to the new fragment's data, because head() needs them
/// in one piece. Returns false if the record has too many empty fragments.
bool RecordStream::begin_fragment() noexcept {
  const std::uint32_t mark = xdr::load_u32(buffer_.data() + at_);
  at_ += xdr::kUnit;
  last_ = (mark & kLastFragment) != 0;
  fragment_left_ = mark & ~kLastFragment;
  in_fragment_ = begun_ = true;
  if (memory_ == nullptr && joined_ < kHeadBytes) {
    if (joined_ > 0) std::memmove(buffer_.data() + at_ - joined_, buffer_.data() + begin_, joined_);
    begin_ = at_ - joined_;
  }
  if (fragment_left_ == 0) ++empty_fragments_;
  return empty_fragments_ <= kMaxEmptyFragments;
}

/// The record has become too long: keeps its first word and drops the rest received so far.
bool RecordStream::begin_skipping() noexcept {
  const std::byte* const joined = memory_ != nullptr ? memory_ : buffer_.data() + begin_;
  std::memcpy(skipped_head_.data(), joined, smaller_of(joined_, skipped_head_.size()));
  skipping_ = true;
  skipped_ = joined_;
  joined_ = 0;
  begin_ = at_;
  return skipped_ + fragment_left_ <= kMaxSkippedBytes;
}

RecordStream::Step RecordStream::skip() noexcept {
  for (;;) {
    if (!in_fragment_) {
      begin_ = at_;
      if (unread() < xdr::kUnit) return Step::NeedBytes;
      if (!begin_fragment() || skipped_ + fragment_left_ > kMaxSkippedBytes) return Step::Broken;
    }
    const std::size_t here = smaller_of(fragment_left_, unread());
    if (skipped_ < skipped_head_.size())
      std::memcpy(skipped_head_.data() + skipped_, buffer_.data() + at_,
                  smaller_of<std::size_t>(here, skipped_head_.size() - skipped_));
    skipped_ += here;
    at_ += here;
    begin_ = at_;
    fragment_left_ -= here;
    if (fragment_left_ > 0) return Step::NeedBytes;
    in_fragment_ = false;
    if (!last_) continue;
    skipping_ = begun_ = false;
    empty_fragments_ = 0;
    record_ = skipped_head_;
    return Step::Skipped;
  }
}

RecordStream::Step RecordStream::next() noexcept {
  if (std::exchange(kept_, false)) return Step::Record;
  if (skipping_) return skip();
  for (;;) {
    if (!in_fragment_) {
      if (joined_ == 0) begin_ = at_;
      if (unread() < xdr::kUnit && memory_ == nullptr && joined_ + xdr::kUnit > buffer_.size())
        return Step::NeedMemory;
      if (unread() < xdr::kUnit) return Step::NeedBytes;
      if (!begin_fragment()) return Step::Broken;
      if (joined_ + fragment_left_ > max_record_bytes_) return begin_skipping() ? skip() : Step::Broken;
    }
    if (memory_ == nullptr && joined_ + fragment_left_ > buffer_.size())
      return joined_ + unread() < kHeadBytes ? Step::NeedBytes : Step::NeedMemory;
    const std::size_t here = smaller_of(fragment_left_, unread());
    if (memory_ != nullptr) {
      if (here > 0) std::memcpy(memory_ + joined_, buffer_.data() + at_, here);
      begin_ = at_ + here;
    }
    // In the buffer a fragment is joined only once it is complete, so that its data stays contiguous.
    if (memory_ == nullptr && here < fragment_left_) return Step::NeedBytes;
    if (memory_ == nullptr && here > 0 && begin_ + joined_ != at_)
      std::memmove(buffer_.data() + begin_ + joined_, buffer_.data() + at_, here);
    joined_ += here;
    at_ += here;
    fragment_left_ -= here;
    if (fragment_left_ > 0) return Step::NeedBytes;
    in_fragment_ = false;
    if (!last_) continue;
    record_ = {memory_ != nullptr ? memory_ : buffer_.data() + begin_, joined_};
    joined_ = 0;
    begun_ = false;
    empty_fragments_ = 0;
    return Step::Record;
  }
}

void RecordStream::lend(std::byte* memory) noexcept {
  memory_ = memory;
  if (joined_ > 0) std::memcpy(memory_, buffer_.data() + begin_, joined_);
  begin_ = at_;
}

void RecordStream::reset() noexcept {
  record_ = {};
  kept_ = in_fragment_ = last_ = skipping_ = begun_ = false;
  empty_fragments_ = 0;
  fragment_left_ = joined_ = begin_ = at_ = filled_ = 0;
  memory_ = nullptr;
}

}  // namespace sluice::tcp
