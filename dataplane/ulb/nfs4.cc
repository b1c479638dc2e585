// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ulb/nfs4.h"

#include "dataplane/base/small_algorithms.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4_grammar.h"
#include "dataplane/ulb/nfs4_values.h"

namespace sluice::ulb {
namespace {

std::size_t items_of(CompoundWalker& walker, std::span<service::Item> items) {
  std::size_t count = 0;
  CompoundWalker::Operation operation;
  while (count < items.size() && walker.next(operation))
    if (operation.has_item) items[count++] = {operation.item_at, operation.item_bytes, operation.item_placed};
  return count;
}

std::size_t nfs4_argument_items(std::uint32_t procedure, std::span<const std::byte> arguments,
                                std::span<service::Item> items) {
  if (procedure != kNfs4Compound) return 0;
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  return items_of(walker, items);
}

std::size_t nfs4_result_items(std::uint32_t procedure, std::span<const std::byte> results,
                              service::PlacedResults* placed, std::span<service::Item> items) {
  if (procedure != kNfs4Compound) return 0;
  CompoundWalker walker(results, CompoundWalker::What::Reply, placed);
  const std::size_t count = items_of(walker, items);
  if (placed != nullptr && count < items.size() && !walker.complete()) placed->unreadable();
  return count;
}

/// Returns the effect of repeating a COMPOUND. It is harmless in later minor versions, whose sessions detect
/// retransmissions (RFC 8881, section 2.10.6). In version 4.0 it is harmless if all operations change
/// nothing, and InOrder if there are also WRITEs.
service::Repetition nfs4_repetition(std::uint32_t procedure, std::span<const std::byte> arguments) {
  if (procedure != kNfs4Compound) return service::Repetition::OnlyOnce;
  enum : std::uint32_t {
    kAccess = 3,
    kCommit = 5,
    kGetAttr = 9,
    kGetFh = 10,
    kLockT = 13,
    kLookup = 15,
    kLookupP = 16,
    kNVerify = 17,
    kPutFh = 22,
    kPutPubFh = 23,
    kPutRootFh = 24,
    kRead = 25,
    kReadDir = 26,
    kReadLink = 27,
    kRenew = 30,
    kRestoreFh = 31,
    kSaveFh = 32,
    kSecInfo = 33,
    kVerify = 37,
    kWrite = 38,
  };
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  if (walker.minor_version() > 0) return service::Repetition::Harmless;
  service::Repetition result = service::Repetition::Harmless;
  CompoundWalker::Operation operation;
  while (walker.next(operation)) switch (operation.number) {
      case kAccess:
      case kCommit:
      case kGetAttr:
      case kGetFh:
      case kLockT:
      case kLookup:
      case kLookupP:
      case kNVerify:
      case kPutFh:
      case kPutPubFh:
      case kPutRootFh:
      case kRead:
      case kReadDir:
      case kReadLink:
      case kRenew:
      case kRestoreFh:
      case kSaveFh:
      case kSecInfo:
      case kVerify:
        break;
      case kWrite:
        result = service::Repetition::InOrder;
        break;
      default:
        return service::Repetition::OnlyOnce;
    }
  return walker.complete() ? result : service::Repetition::OnlyOnce;
}

constexpr std::uint32_t kSequence = 53;

/// Procedures NULL and COMPOUND. A COMPOUND may have up to 255 Read chunks in the call and 255 Write chunks
/// in the reply. It counts as idempotent, because its results have no exact bound, and because owners and
/// sessions handle its retransmission.
constexpr service::ProcedureBinding kNfs4Procedures[] = {
    {}, {.eligible_arguments = 255, .eligible_results = 255}};
constexpr std::string_view kNfs4Names[] = {"null", "compound"};
constexpr service::Binding kNfs4{.program = kNfsProgram,
                                 .version = kNfs4Version,
                                 .procedures = kNfs4Procedures,
                                 .unusable = service::UnusableChunks::Ignore,
                                 .name = "nfs",
                                 .procedure_names = kNfs4Names,
                                 .max_results_bytes = &max_nfs4_results,
                                 .argument_items = &nfs4_argument_items,
                                 .result_items = &nfs4_result_items,
                                 .expected_items = &expected_nfs4_items,
                                 .repetition = &nfs4_repetition,
                                 .announces_sizes = &nfs4_announces_sizes,
                                 .cap_sizes = &cap_nfs4_sizes,
                                 .change_call = &change_nfs4_call,
                                 .withhold_in_results = &withhold_in_nfs4_results,
                                 .unknown_operation_at = &unknown_nfs4_operation_at,
                                 .checks_positions = true};

}  // namespace

CompoundWalker::CompoundWalker(std::span<const std::byte> message, What what,
                               service::PlacedResults* placed) noexcept
    : what_(what), values_(message, placed) {
  xdr::Reader& in = values_.reader();
  if (is_reply()) {
    status_ = in.u32();
    values_.opaque();  // tag
  } else {
    values_.opaque();
    minor_version_ = in.u32();
    if (what == What::CallbackCall) in.u32();  // callback_ident
  }
  operations_ = left_ = in.u32();
  // Each operation has at least its number.
  if (left_ > in.remaining() / xdr::kUnit) in.fail();
}

const char* CompoundWalker::grammar_of(std::uint32_t number, Operation& operation) const noexcept {
  if (number == kNfs4Illegal) {
    operation.name = "illegal";
    return is_reply() ? "w" : "";
  }
  const bool callback = what_ == What::CallbackCall || what_ == What::CallbackReply;
  const auto table = callback ? std::span<const OperationGrammar>(kNfs4Callbacks)
                              : std::span<const OperationGrammar>(kNfs4Operations);
  if (number >= table.size() || table[number].name == nullptr) return nullptr;
  operation.name = table[number].name;
  return is_reply() ? table[number].results : table[number].arguments;
}

bool CompoundWalker::next(Operation& operation) noexcept {
  xdr::Reader& in = values_.reader();
  if (!in.ok() || left_ == 0) return false;
  operation = {.begin = in.position()};
  operation.number = in.u32();
  const char* grammar = grammar_of(operation.number, operation);
  if (grammar == nullptr) {
    unknown_ = in.ok();
    in.fail();
    return false;
  }
  if (is_reply()) {
    xdr::Reader ahead = in;
    operation.status = ahead.u32();
  }
  values_.skip(grammar);
  const ValueReader::EligibleItem eligible = values_.take_item();
  operation.has_item = eligible.found;
  operation.item_at = eligible.item.offset;
  operation.item_bytes = eligible.item.bytes;
  operation.item_placed = eligible.item.placed;
  operation.end = in.position();
  --left_;
  return in.ok();
}

bool nfs4_has_session(std::uint32_t procedure, std::span<const std::byte> arguments) noexcept {
  if (procedure != kNfs4Compound) return false;
  CompoundWalker walker(arguments, CompoundWalker::What::Call);
  CompoundWalker::Operation first;
  return walker.minor_version() > 0 && walker.next(first) && first.number == kSequence;
}

bool nfs4_refuses_connection(std::span<const std::byte> results) noexcept {
  constexpr std::uint32_t kNotBoundToSession = 10055;
  CompoundWalker walker(results, CompoundWalker::What::Reply);
  CompoundWalker::Operation first;
  return walker.status() == kNotBoundToSession && walker.next(first) && first.number == kSequence &&
         first.status == kNotBoundToSession;
}

const service::Binding& nfs4_binding() noexcept {
  return kNfs4;
}

// --- Values of the grammar

namespace {

/// Advances past one element of the grammar, nested elements included.
void skip_element(const char*& grammar) noexcept {
  int depth = 0;
  if (*grammar == '*') ++grammar;
  do {
    switch (*grammar++) {
      case '[':
      case '(':
      case '{':
        ++depth;
        break;
      case ']':
      case ')':
      case '}':
        --depth;
        break;
      default:
        break;
    }
  } while (depth > 0);
}

/// Returns the number of words up to the first value without a fixed size, and advances to it.
std::size_t fixed_units(const char*& grammar) noexcept {
  std::size_t units = 0;
  for (; *grammar == 'w' || *grammar == 'd'; ++grammar) units += *grammar == 'w' ? 1 : 2;
  return units;
}

bool ends(char letter) noexcept {
  return letter == '\0' || letter == ']' || letter == ')' || letter == ';';
}

}  // namespace

void ValueReader::sequence(const char*& grammar) noexcept {
  while (!ends(*grammar) && in_.ok()) element(grammar);
}

void ValueReader::element(const char*& grammar) noexcept {
  switch (*grammar) {
    case 'w':
    case 'd':
      in_.units(fixed_units(grammar));
      return;
    case 'o':
      opaque();
      ++grammar;
      return;
    case 'E':
      eligible();
      ++grammar;
      return;
    case '[':
      return repeated(grammar, true);
    case '*':
      return repeated(grammar, false);
    case '{':
      return choice(grammar);
    default:
      in_.fail();  // Unreachable, because the grammar is a constant.
      return;
  }
}

void ValueReader::eligible() noexcept {
  if (placed_ != nullptr) {
    xdr::Reader ahead = in_;
    const std::uint32_t bytes = ahead.u32();
    if (ahead.ok() && placed_->placed(items_++, bytes)) {
      in_ = ahead;
      item_ = {true, {in_.position(), bytes, true}};
      return;
    }
  }
  const auto data = opaque();
  if (!in_.ok()) return;
  const auto at = static_cast<std::size_t>(data.data() - message_.data());
  item_ = {true, {at, static_cast<std::uint32_t>(data.size()), false}};
}

std::span<const std::byte> ValueReader::opaque() noexcept {
  return in_.opaque(static_cast<std::uint32_t>(smaller_of<std::size_t>(in_.remaining(), ~std::uint32_t{0})));
}

/// Steps over an array or a list. A count precedes the values of "[x]". A word before each element of "*(x)"
/// says whether the element follows.
void ValueReader::repeated(const char*& grammar, bool counted) noexcept {
  const char* const body = grammar + (counted ? 1 : 2);
  std::uint32_t count = counted ? in_.u32() : 0;
  // Every element has at least one word.
  if (counted && count > in_.remaining() / xdr::kUnit) in_.fail();
  const char* each = body;
  if (const std::size_t units = fixed_units(each); counted && *each == ']') {
    in_.units(count * units);
  } else {
    while (in_.ok() && (counted ? count-- > 0 : in_.boolean())) sequence(each = body);
  }
  skip_element(grammar);
}

void ValueReader::choice(const char*& grammar) noexcept {
  const std::uint32_t wanted = in_.u32();
  const char* arm = grammar + 1;
  bool taken = false;
  while (in_.ok() && !taken && *arm != '}') {
    bool matches = *arm == '_';
    std::uint32_t value = 0;
    for (; *arm != ':'; ++arm)
      if (*arm != '_') value = value * 10 + static_cast<std::uint32_t>(*arm - '0');
    matches = matches || value == wanted;
    ++arm;
    if (matches) {
      sequence(arm);
      taken = true;
    } else {
      while (*arm != ';') skip_element(arm);
      ++arm;
    }
  }
  if (!taken) in_.fail();
  skip_element(grammar);
}

}  // namespace sluice::ulb
