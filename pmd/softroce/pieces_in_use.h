// SPDX-License-Identifier: Apache-2.0
//
// Pieces of payload, in memory that is not of a packet buffer, that an ethdev may still read: which of them it has freed. Numbers
// of pieces are free-running, and an ethdev may free them in any order. Belongs to one lane; only its reactor may call, which
// is also who has the ethdev free packets. Outlives the ethdev's queues.
#pragma once

#include <cstdint>
#include <optional>

#include "pmd/softroce/psn_bitmap.h"

namespace sluice::rdma::softroce {

class PiecesInUse {
 public:
  /// In the private memory of the buffer that refers to the piece. Defined in transmitter.cc, as what handles it.
  struct Piece;

  /// Setup: at most so many at a time.
  void open(std::uint32_t most) { freed_.emplace(most); }

  /// Whether one that was added long ago has not been freed, while all others may have been.
  bool full() const noexcept { return end_ - begin_ == freed_->capacity(); }
  /// Unless full(): `piece` is in use until its buffer is freed.
  void add(Piece& piece) noexcept;
  /// The number of the next one.
  std::uint64_t end() const noexcept { return end_; }
  /// Whether all before `number` have been freed.
  bool freed_before(std::uint64_t number) const noexcept { return number <= begin_; }

 private:
  static void on_freed(void*, void* piece) noexcept;
  void free(std::uint64_t number) noexcept {
    freed_->add(static_cast<std::uint32_t>(number));
    while (begin_ != end_ && freed_->take(static_cast<std::uint32_t>(begin_))) ++begin_;
  }

  std::uint64_t begin_ = 0;  ///< the first one that has not been freed
  std::uint64_t end_ = 0;
  std::optional<PsnBitmap> freed_;  ///< behind it
};

}  // namespace sluice::rdma::softroce
