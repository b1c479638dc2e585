// SPDX-License-Identifier: Apache-2.0
//
// Tracks the pieces of payload outside packet buffers that an ethdev may still read. Numbers of pieces are
// free-running, and an ethdev may free the pieces in any order. Belongs to one lane; only its reactor may
// call, and only that reactor makes the ethdev free packets. Outlives the ethdev's queues.
#pragma once

#include <cstdint>
#include <optional>

#include "dataplane/base/invariant.h"
#include "pmd/softroce/psn_bitmap.h"

namespace sluice::rdma::softroce {

class PiecesInUse {
 public:
  /// A piece, stored in the private memory of the buffer that refers to it. Defined in transmitter.cc with
  /// the code that uses it.
  struct Piece;

  /// Setup. Allows at most `most` pieces in use.
  void open(std::uint32_t most) { freed_.emplace(most); }

  /// Reports whether no further piece can be added. One old piece that is not freed suffices, even if all
  /// others are freed.
  bool full() const noexcept {
    SLUICE_INVARIANT_DEBUG(end_ - begin_ <= freed_->capacity(), ring_index);
    return end_ - begin_ == freed_->capacity();
  }
  /// Records that `piece` is in use until its buffer is freed. Requires !full().
  void add(Piece& piece) noexcept;
  /// Returns the number of the next piece.
  std::uint64_t end() const noexcept { return end_; }
  /// Reports whether all pieces before `number` were freed.
  bool freed_before(std::uint64_t number) const noexcept { return number <= begin_; }

 private:
  static void on_freed(void*, void* piece) noexcept;
  void free(std::uint64_t number) noexcept {
    SLUICE_INVARIANT_DEBUG(number >= begin_ && number < end_, ring_index);
    freed_->add(static_cast<std::uint32_t>(number));
    while (begin_ != end_ && freed_->take(static_cast<std::uint32_t>(begin_))) ++begin_;
  }

  std::uint64_t begin_ = 0;  ///< number of the first piece that is not freed
  std::uint64_t end_ = 0;
  std::optional<PsnBitmap> freed_;  ///< freed pieces from begin_ on
};

}  // namespace sluice::rdma::softroce
