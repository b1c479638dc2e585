// SPDX-License-Identifier: Apache-2.0
//
// Steps over the COMPOUNDs of NFS version 4, all minor versions, forward and callback, without copying: where
// each operation begins and ends, and where its DDP-eligible item is (RFC 8267, section 6.1). Pure; any
// thread.
//
// The input is hostile. What cannot be stepped over (a count beyond the message, a union without that arm, an
// operation that does not exist) ends the walk; nothing outside the message is read, and the work is bounded
// by its length.
#pragma once

#include <cstdint>
#include <span>

#include "dataplane/service/api/binding.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::ulb {

inline constexpr std::uint32_t kNfs4Version = 4;
inline constexpr std::uint32_t kNfs4Compound = 1;
/// RFC 7530, section 15.2.3: what a server answers an operation that it does not know with.
inline constexpr std::uint32_t kNfs4Illegal = 10044;

class CompoundWalker {
 public:
  enum class What : std::uint8_t { Call, Reply, CallbackCall, CallbackReply };

  struct Operation {
    std::uint32_t number = 0;
    const char* name = "";
    std::uint32_t status = 0;      ///< of a reply
    std::size_t begin = 0;         ///< of the operation's number, in the message
    std::size_t end = 0;           ///< behind the operation
    bool has_item = false;         ///< DDP-eligible; an operation has one at most
    std::size_t item_at = 0;       ///< its data, behind the count word
    std::uint32_t item_bytes = 0;  ///< without round-up
    bool item_placed = false;      ///< its data was taken out
  };

  /// `message` is the argument of the COMPOUND, or its result, out of which items may have been taken; null:
  /// none.
  CompoundWalker(std::span<const std::byte> message, What what,
                 service::PlacedResults* placed = nullptr) noexcept;

  /// False when all operations were stepped over, or one cannot be: complete() tells which.
  bool next(Operation& operation) noexcept;

  /// Whether the message could be stepped over to its last byte.
  bool complete() const noexcept { return !failed_ && left_ == 0 && in_.remaining() == 0; }
  std::uint32_t minor_version() const noexcept { return minor_version_; }  ///< of a call
  std::uint32_t status() const noexcept { return status_; }                ///< of a reply
  std::uint32_t operations() const noexcept { return operations_; }        ///< that it says it has

 private:
  bool is_reply() const noexcept { return what_ == What::Reply || what_ == What::CallbackReply; }
  const char* grammar_of(std::uint32_t number, Operation& operation) const noexcept;
  // Each steps over what stands at `grammar` and moves that behind it.
  void sequence(const char*& grammar) noexcept;
  void element(const char*& grammar) noexcept;
  void repeated(const char*& grammar, bool counted) noexcept;
  void choice(const char*& grammar) noexcept;
  void item() noexcept;
  std::span<const std::byte> opaque() noexcept;
  bool boolean() noexcept;
  bool good() const noexcept { return !failed_ && in_.ok(); }

  const std::span<const std::byte> message_;
  const What what_;
  service::PlacedResults* const placed_;
  std::size_t items_ = 0;  ///< of results, so far
  xdr::Reader in_;
  bool failed_ = false;
  std::uint32_t minor_version_ = 0;
  std::uint32_t status_ = 0;
  std::uint32_t operations_ = 0;
  std::uint32_t left_ = 0;
  Operation* current_ = nullptr;
};

/// Upper bound of the results of a COMPOUND, eligible items included. What the protocol bounds nowhere
/// (owners, lists) has bounds here that servers keep; a reply beyond them needs a Reply chunk that nobody
/// offered.
std::uint64_t max_nfs4_results(std::uint32_t procedure, std::span<const std::byte> arguments);

/// Most bytes of the READs and READLINKs of a COMPOUND, in order; as many as there is room for.
std::size_t expected_nfs4_items(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<std::uint32_t> most_bytes);

/// Each WRITE, symbolic link's CREATE, READ and READLINK of a COMPOUND has an eligible item; Read chunks that
/// stand elsewhere are refused.
const service::Binding& nfs4_binding() noexcept;

}  // namespace sluice::ulb
