// SPDX-License-Identifier: Apache-2.0
//
// Upper-layer binding: what an RPC program lets the transport reduce (RFC 8166, section 6; rows V1-183 to
// V1-192). Bindings are constants; any thread may read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::service {

/// Eligible items are counted opaques (all that RFC 8267 names are). Eligibility is a property of single
/// items: there is no way to mark a union (V1-075). An item not counted here is never reduced (V1-070,
/// V1-184).
struct ProcedureBinding {
  std::uint8_t eligible_arguments = 0;  ///< most Read chunks with a Position other than zero
  std::uint8_t eligible_results = 0;    ///< most Write chunks that results can fill
  /// False: such a call is executed only if its largest results have room in a reply, as an error after its
  /// execution makes its client repeat it (D2-47). Binding::max_results_bytes has to be there, and exact.
  bool idempotent = true;
};

/// An eligible item in an encoded argument or result.
struct Item {
  std::size_t offset = 0;   ///< of its data, behind the count word
  std::uint32_t bytes = 0;  ///< without round-up
  bool placed = false;      ///< its data is not there: it was taken out, round-up included
};

/// Tells which of a reply's eligible items were taken out of it.
class PlacedResults {
 public:
  /// Of the item `index`, counted from zero, with this count word.
  virtual bool placed(std::size_t index, std::uint32_t bytes) noexcept = 0;
  /// The results cannot be stepped over: there may be further items.
  virtual void unreadable() noexcept = 0;

 protected:
  ~PlacedResults() = default;
};

/// What a responder does with chunks for items that a procedure cannot have. Read chunks of version 2 are always refused
/// (V2-155).
enum class UnusableChunks : std::uint8_t {
  Refuse,  ///< ERR_CHUNK (V1-189)
  Ignore,  ///< Read chunks unused, Write chunks returned unused (NFSv2 and NFSv3, V1-194)
};

/// What happens to others when a call is executed twice.
enum class Repetition : std::uint8_t {
  Harmless,  ///< nothing: it changes nothing, or repetition is the protocol's own business (sessions)
  InOrder,   ///< nothing as long as nothing of its client comes in between: a WRITE
  OnlyOnce,  ///< the second result differs from the first
};

/// What the path through a gateway carries, in bytes.
struct CarriedSizes {
  std::uint32_t data_bytes = 0;     ///< of one READ or WRITE
  std::uint32_t message_bytes = 0;  ///< of an RPC message, call or reply
};

/// What clients of a gateway are not told, as it would lead them past the gateway. All: for clients that are to
/// stay.
struct Withheld {
  bool pnfs = true;       ///< that files have layouts on data servers (RFC 8881, section 12)
  bool referrals = true;  ///< other locations of a file system (RFC 8881, section 11)
  bool any() const noexcept { return pnfs || referrals; }
};

/// Of calls, to whoever serves them.
struct Route {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
};

struct Binding {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  /// By procedure number; procedures beyond have no eligible item.
  std::span<const ProcedureBinding> procedures{};
  UnusableChunks unusable = UnusableChunks::Refuse;
  std::string_view name{};  ///< of the program, for people
  /// By procedure number, for people; calls of those beyond are not told apart in statistics.
  std::span<const std::string_view> procedure_names{};

  /// Upper bound of the RPC results in bytes (behind accept_stat), eligible items included, for the arguments
  /// encoded in `arguments` (V1-118, V1-187). Null: the caller has to give the size.
  std::uint64_t (*max_results_bytes)(std::uint32_t procedure, std::span<const std::byte> arguments) = nullptr;

  /// The eligible items in `arguments` (behind the RPC header), in order; as many as `items` has room for.
  /// Optional: null when the program has none or never needs their offsets. The same holds for the hooks
  /// below.
  std::size_t (*argument_items)(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<Item> items) = nullptr;
  /// The same of `results` (behind accept_stat), out of which some may have been taken.
  std::size_t (*result_items)(std::uint32_t procedure, std::span<const std::byte> results,
                              PlacedResults* placed, std::span<Item> items) = nullptr;
  /// Most bytes of each eligible item that the results of a call with these arguments can have, in order. Zero: no
  /// Write chunk is worth it, as for the path of a link, which is short, and which Linux 6.1's server places with its
  /// count in version 4.
  std::size_t (*expected_items)(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<std::uint32_t> most_bytes) = nullptr;
  /// Null: nothing is known of the program but NULL.
  Repetition (*repetition)(std::uint32_t procedure, std::span<const std::byte> arguments) = nullptr;
  /// Whether the results of a call with these arguments may say how much the server takes or returns at once.
  /// True for one procedure of a program at most, as cap_sizes is not told which one it was.
  bool (*announces_sizes)(std::uint32_t procedure, std::span<const std::byte> arguments) = nullptr;
  /// Lowers in place what the results of such a call announce beyond `most`; no byte moves. What cannot be
  /// stepped over stays as it is, with all that stands behind it. `placed` as for result_items.
  void (*cap_sizes)(std::span<std::byte> results, const CarriedSizes& most, PlacedResults* placed) = nullptr;
  /// Takes questions for what is withheld out of the arguments, in place; no byte moves. Whether the results may
  /// still tell it.
  bool (*withhold_in_call)(std::uint32_t procedure, std::span<std::byte> arguments,
                           const Withheld& withheld) = nullptr;
  /// Takes it out of the results of such a call, in the manner of cap_sizes.
  void (*withhold_in_results)(std::span<std::byte> results, const Withheld& withheld,
                              PlacedResults* placed) = nullptr;
  /// Read chunks are refused that do not stand where argument_items says.
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
  bool withhold(std::uint32_t number, std::span<std::byte> arguments,
                const Withheld& withheld) const noexcept {
    return withhold_in_call != nullptr && withhold_in_call(number, arguments, withheld);
  }
};

}  // namespace sluice::service
