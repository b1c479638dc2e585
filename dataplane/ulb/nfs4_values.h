// SPDX-License-Identifier: Apache-2.0
//
// Reader that steps over XDR values described by a grammar of nfs4_grammar.h. Pure; any thread. The message
// must outlive the reader.
//
// The input is untrusted. A count beyond the message or an undefined union arm fails the reader permanently.
// Nothing outside the message is read, and the length of the message bounds the work.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "dataplane/service/api/binding.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::ulb {

class ValueReader {
 public:
  /// Reads `message`. `placed` tells which eligible items were taken out of it. If it is null, none were.
  explicit ValueReader(std::span<const std::byte> message, service::PlacedResults* placed = nullptr) noexcept
      : message_(message), placed_(placed), in_(message) {}

  /// Returns the XDR reader, with which single values can be read.
  xdr::Reader& reader() noexcept { return in_; }
  const xdr::Reader& reader() const noexcept { return in_; }
  bool ok() const noexcept { return in_.ok(); }

  /// Steps over the values that the whole grammar describes.
  void skip(const char* grammar) noexcept { sequence(grammar); }
  /// Reads an opaque of any length.
  std::span<const std::byte> opaque() noexcept;

  struct EligibleItem {
    bool found = false;
    service::Item item;
  };
  /// Returns and clears the last eligible item that was stepped over.
  EligibleItem take_item() noexcept { return std::exchange(item_, {}); }

 private:
  // Each function steps over one value described at `grammar`, and advances `grammar` past the description.
  void sequence(const char*& grammar) noexcept;
  void element(const char*& grammar) noexcept;
  void repeated(const char*& grammar, bool counted) noexcept;
  void choice(const char*& grammar) noexcept;
  void eligible() noexcept;

  const std::span<const std::byte> message_;
  service::PlacedResults* const placed_;
  xdr::Reader in_;
  std::size_t items_ = 0;  ///< number of eligible items so far
  EligibleItem item_;
};

}  // namespace sluice::ulb
