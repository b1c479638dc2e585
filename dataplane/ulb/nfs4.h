// SPDX-License-Identifier: Apache-2.0
//
// Iteration over the operations of NFS version 4 COMPOUNDs of all minor versions, forward and callback,
// without copying. It finds where each operation begins and ends, and where its DDP-eligible item is (RFC
// 8267, section 6.1). Pure; any thread. The message must outlive the walker. Offsets and sizes are in bytes.
//
// The input is untrusted. Anything that cannot be parsed (a count beyond the message, an undefined union arm,
// an unknown operation) ends the walk. Nothing outside the message is read, and the length of the message
// bounds the work.
#pragma once

#include <cstdint>
#include <span>

#include "dataplane/service/api/binding.h"
#include "dataplane/ulb/nfs4_values.h"

namespace sluice::ulb {

inline constexpr std::uint32_t kNfs4Version = 4;
inline constexpr std::uint32_t kNfs4Compound = 1;
// Numbers of operations (RFC 7530, section 16).
inline constexpr std::uint32_t kOpGetAttr = 9;
inline constexpr std::uint32_t kOpReadDir = 26;
/// Operation number of the result of an unknown operation (RFC 7530, section 15.2.3).
inline constexpr std::uint32_t kNfs4Illegal = 10044;

class CompoundWalker {
 public:
  enum class What : std::uint8_t { Call, Reply, CallbackCall, CallbackReply };

  struct Operation {
    std::uint32_t number = 0;
    const char* name = "";
    std::uint32_t status = 0;      ///< status of the operation, in a reply
    std::size_t begin = 0;         ///< offset of the operation's number in the message
    std::size_t end = 0;           ///< offset of the end of the operation
    bool has_item = false;         ///< has a DDP-eligible item; an operation has at most one
    std::size_t item_at = 0;       ///< offset of the item's data, after the count word
    std::uint32_t item_bytes = 0;  ///< length of the item without round-up
    bool item_placed = false;      ///< the data was moved in a chunk and is not in the message
  };

  /// Starts a walk. `message` is the arguments or the results of a COMPOUND. `placed` tells which items of
  /// results were moved in chunks. If it is null, none were.
  CompoundWalker(std::span<const std::byte> message, What what,
                 service::PlacedResults* placed = nullptr) noexcept;

  /// Advances to the next operation. Returns false at the end of the message, or at an operation that cannot
  /// be parsed. complete() distinguishes the two.
  bool next(Operation& operation) noexcept;

  /// Returns true if the whole message was parsed, to its last byte.
  bool complete() const noexcept { return values_.ok() && left_ == 0 && values_.reader().remaining() == 0; }
  std::uint32_t minor_version() const noexcept { return minor_version_; }  ///< valid for a call
  std::uint32_t status() const noexcept { return status_; }                ///< valid for a reply
  std::uint32_t operations() const noexcept { return operations_; }        ///< count word of the message
  /// After next() has returned false: returns true if it has found an unknown operation, of which it has set
  /// number and begin.
  bool at_unknown_operation() const noexcept { return unknown_; }

 private:
  bool is_reply() const noexcept { return what_ == What::Reply || what_ == What::CallbackReply; }
  const char* grammar_of(std::uint32_t number, Operation& operation) const noexcept;

  const What what_;
  ValueReader values_;
  std::uint32_t minor_version_ = 0;
  std::uint32_t status_ = 0;
  std::uint32_t operations_ = 0;
  std::uint32_t left_ = 0;
  bool unknown_ = false;
};

/// Returns an upper bound in bytes of the results of a COMPOUND, eligible items included. Where the protocol
/// has no bound (owners, lists), the function assumes limits that servers keep in practice. A longer reply
/// would need a larger Reply chunk than is offered.
std::uint64_t max_nfs4_results(std::uint32_t procedure, std::span<const std::byte> arguments);

/// Writes upper bounds in bytes of the READ and READLINK data of a COMPOUND, in order, at most
/// most_bytes.size() of them. Returns how many it has written.
std::size_t expected_nfs4_items(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<std::uint32_t> most_bytes);

/// Hooks of Binding for the sizes that a server announces. These are the channel attributes of
/// CREATE_SESSION, and FATTR4_MAXREAD and FATTR4_MAXWRITE in results of GETATTR and READDIR.
bool nfs4_announces_sizes(std::uint32_t procedure, std::span<const std::byte> arguments);
void cap_nfs4_sizes(std::span<std::byte> results, const service::CarriedSizes& most,
                    service::PlacedResults* placed);

/// Hooks of Binding for withheld information, which is roles and attributes of pNFS, and attributes of
/// locations, and for unknown operations.
///
/// An unknown operation becomes OP_ILLEGAL, at which every server ends the COMPOUND with
/// NFS4ERR_OP_ILLEGAL (RFC 8881, section 15.2.3). The operations before it are executed, so a SEQUENCE
/// advances its session, and the client gets the reply of a server that does not know the operation either.
service::CallChanges change_nfs4_call(std::uint32_t procedure, std::span<std::byte> arguments,
                                      const service::Withheld& withheld);
std::optional<std::size_t> unknown_nfs4_operation_at(std::uint32_t procedure,
                                                     std::span<const std::byte> arguments);
void withhold_in_nfs4_results(std::span<std::byte> results, const service::Withheld& withheld,
                              service::PlacedResults* placed);

/// Returns true if the COMPOUND belongs to a session. The server associates the session with any connection
/// on which SEQUENCE arrives, unless the client has requested state protection (RFC 8881, section 2.10.3.1).
bool nfs4_has_session(std::uint32_t procedure, std::span<const std::byte> arguments) noexcept;
/// Returns true if the results of such a COMPOUND say that the connection is not associated with its session
/// (RFC 8881, section 15.1.11.6). None of its operations has been executed then.
bool nfs4_refuses_connection(std::span<const std::byte> results) noexcept;

/// Returns the binding of NFS version 4. Each WRITE, CREATE of a symbolic link, READ and READLINK of a
/// COMPOUND has an eligible item. Read chunks at other positions are refused.
const service::Binding& nfs4_binding() noexcept;

}  // namespace sluice::ulb
