// SPDX-License-Identifier: Apache-2.0
//
// Upper-layer binding: the items of an RPC program that the transport may reduce (RFC 8166, section 6; rows
// V1-183 to V1-192). Bindings are constants; any thread may read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace sluice::service {

/// Eligible items of a procedure. They are counted opaques, as are all items in RFC 8267. Eligibility is a
/// property of single items, so a union cannot be marked (V1-075). An item not counted here is never reduced
/// (V1-070, V1-184).
struct ProcedureBinding {
  std::uint8_t eligible_arguments = 0;  ///< maximum Read chunks with a Position other than zero
  std::uint8_t eligible_results = 0;    ///< maximum Write chunks that results can fill
  /// If false, a call is executed only if its largest possible results fit a reply, because an error after
  /// execution would cause the client to retransmit it (D2-47). Requires an exact Binding::max_results_bytes.
  bool idempotent = true;
};

/// An eligible item in an encoded argument or result.
struct Item {
  std::size_t offset = 0;   ///< offset of the data, after the count word
  std::uint32_t bytes = 0;  ///< length without round-up
  bool placed = false;      ///< the data was removed, including round-up
};

/// Tells which of a reply's eligible items were removed from it.
class PlacedResults {
 public:
  /// Returns true if the item `index`, counted from zero, with this count word was removed.
  virtual bool placed(std::size_t index, std::uint32_t bytes) noexcept = 0;
  /// Called if the results cannot be parsed further; more items may follow.
  virtual void unreadable() noexcept = 0;

 protected:
  ~PlacedResults() = default;
};

/// Treatment of chunks for items that a procedure does not have. Version 2 always refuses such Read chunks
/// (V2-155).
enum class UnusableChunks : std::uint8_t {
  Refuse,  ///< ERR_CHUNK (V1-189)
  Ignore,  ///< Read chunks are ignored, Write chunks returned unused (NFSv2 and NFSv3, V1-194)
};

/// Effect of executing a call twice.
enum class Repetition : std::uint8_t {
  Harmless,  ///< no effect: the call changes nothing, or the protocol handles retransmissions (sessions)
  InOrder,   ///< no effect unless other calls of the client are executed in between: a WRITE
  OnlyOnce,  ///< the second result differs from the first
};

/// Sizes that the path through a gateway supports, in bytes.
struct CarriedSizes {
  std::uint32_t data_bytes = 0;     ///< data of one READ or WRITE
  std::uint32_t message_bytes = 0;  ///< RPC message, call or reply
};

/// Information that a gateway withholds from clients because they would use it to bypass the gateway. By
/// default everything is withheld.
struct Withheld {
  bool pnfs = true;       ///< layouts on data servers (RFC 8881, section 12)
  bool referrals = true;  ///< other locations of a file system (RFC 8881, section 11)
  bool any() const noexcept { return pnfs || referrals; }
  bool operator==(const Withheld&) const = default;
};

/// Result of Binding::change_call.
struct CallChanges {
  bool results_tell = false;  ///< the results may still contain withheld information
  /// Number of bytes of the arguments to send, if an operation that the binding does not know follows them.
  /// The last operation in them is one that every server refuses as unknown.
  std::optional<std::size_t> arguments_bytes{};
  /// Number of that operation. Nothing if it was replaced by an earlier change of the same arguments.
  std::optional<std::uint32_t> unknown_operation{};
};

/// Identifies the calls that a service handles.
struct Route {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  bool operator==(const Route&) const = default;
};

struct Binding {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  /// Indexed by procedure number. Procedures beyond the end have no eligible items.
  std::span<const ProcedureBinding> procedures{};
  UnusableChunks unusable = UnusableChunks::Refuse;
  std::string_view name{};  ///< program name, for display
  /// Names for display, indexed by procedure number. Statistics do not distinguish procedures beyond the end.
  std::span<const std::string_view> procedure_names{};

  /// Returns an upper bound of the RPC results in bytes (after accept_stat), eligible items included, for the
  /// arguments encoded in `arguments` (V1-118, V1-187). Null: the caller must supply the size.
  std::uint64_t (*max_results_bytes)(std::uint32_t procedure, std::span<const std::byte> arguments) = nullptr;

  /// Finds the eligible items in `arguments` (after the RPC header), in order, as many as `items` has room
  /// for. Optional: null if the program has no items or never needs their offsets. The hooks below are also
  /// optional.
  std::size_t (*argument_items)(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<Item> items) = nullptr;
  /// Finds the eligible items in `results` (after accept_stat), some of which may have been removed.
  std::size_t (*result_items)(std::uint32_t procedure, std::span<const std::byte> results,
                              PlacedResults* placed, std::span<Item> items) = nullptr;
  /// Returns the maximum length of each eligible item in the results of a call with these arguments, in
  /// order. Zero means that no Write chunk should be offered. An example is the target of a symbolic link,
  /// which is short and which the server of Linux 6.1 places together with its count in version 4.
  std::size_t (*expected_items)(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<std::uint32_t> most_bytes) = nullptr;
  /// Returns the effect of executing a call twice. Null: only NULL is known to be harmless.
  Repetition (*repetition)(std::uint32_t procedure, std::span<const std::byte> arguments) = nullptr;
  /// Returns true if the results of a call with these arguments may announce the server's transfer sizes. At
  /// most one procedure of a program may return true because cap_sizes does not get the procedure.
  bool (*announces_sizes)(std::uint32_t procedure, std::span<const std::byte> arguments) = nullptr;
  /// Lowers, in place, the sizes that the results of such a call announce to `most`, without moving bytes.
  /// Data that cannot be parsed, and everything after it, stays unchanged. `placed` is used as in
  /// result_items.
  void (*cap_sizes)(std::span<std::byte> results, const CarriedSizes& most, PlacedResults* placed) = nullptr;
  /// Removes requests for withheld information from the arguments, and replaces the first operation that the
  /// binding does not know, in place and without moving bytes. The results of an unknown operation could not
  /// be parsed, and what they tell the client could not be withheld.
  CallChanges (*change_call)(std::uint32_t procedure, std::span<std::byte> arguments,
                             const Withheld& withheld) = nullptr;
  /// Removes withheld information from the results of such a call, in the manner of cap_sizes.
  void (*withhold_in_results)(std::span<std::byte> results, const Withheld& withheld,
                              PlacedResults* placed) = nullptr;
  /// Returns the offset in `arguments` of the first operation that the binding does not know, or nothing.
  std::optional<std::size_t> (*unknown_operation_at)(std::uint32_t procedure,
                                                     std::span<const std::byte> arguments) = nullptr;
  /// True if Read chunks are refused unless they are at the positions that argument_items returns, or behind
  /// an unknown operation.
  bool checks_positions = false;

  ProcedureBinding procedure(std::uint32_t number) const noexcept {
    return number < procedures.size() ? procedures[number] : ProcedureBinding{};
  }
  Repetition repetition_of(std::uint32_t number, std::span<const std::byte> arguments) const noexcept {
    if (number == 0) return Repetition::Harmless;
    return repetition != nullptr ? repetition(number, arguments) : Repetition::OnlyOnce;
  }
  bool announces(std::uint32_t number, std::span<const std::byte> arguments) const noexcept {
    return announces_sizes != nullptr && announces_sizes(number, arguments);
  }
  CallChanges change(std::uint32_t number, std::span<std::byte> arguments,
                     const Withheld& withheld) const noexcept {
    return change_call != nullptr ? change_call(number, arguments, withheld) : CallChanges{};
  }
};

}  // namespace sluice::service
