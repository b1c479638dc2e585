// SPDX-License-Identifier: Apache-2.0
//
// Steps over XDR values as a grammar of nfs4_grammar.h describes them. Pure; any thread. The message must
// outlive the reader.
//
// The input is hostile: a count beyond the message or an undefined union arm fails the reader, for good.
// Nothing outside the message is read, and the work is bounded by its length.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "dataplane/service/api/binding.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::ulb {

class ValueReader {
 public:
  /// `placed` says which eligible items were taken out of the message; null: none.
  explicit ValueReader(std::span<const std::byte> message, service::PlacedResults* placed = nullptr) noexcept
      : message_(message), placed_(placed), in_(message) {}

  /// For what is to be read rather than stepped over.
  xdr::Reader& reader() noexcept { return in_; }
  const xdr::Reader& reader() const noexcept { return in_; }
  bool ok() const noexcept { return in_.ok(); }

  /// Steps over the values that the whole grammar describes.
  void skip(const char* grammar) noexcept { sequence(grammar); }
  /// An opaque of any length.
  std::span<const std::byte> opaque() noexcept;

  struct EligibleItem {
    bool found = false;
    service::Item item;
  };
  /// The last eligible item that was stepped over since the previous time.
  EligibleItem take_item() noexcept { return std::exchange(item_, {}); }

 private:
  // Each steps over one value as described at `grammar`, and advances `grammar` behind the description.
  void sequence(const char*& grammar) noexcept;
  void element(const char*& grammar) noexcept;
  void repeated(const char*& grammar, bool counted) noexcept;
  void choice(const char*& grammar) noexcept;
  void eligible() noexcept;

  const std::span<const std::byte> message_;
  service::PlacedResults* const placed_;
  xdr::Reader in_;
  std::size_t items_ = 0;  ///< eligible ones seen so far
  EligibleItem item_;
};

}  // namespace sluice::ulb
