// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ulb/nfs4.h"

#include <algorithm>

#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4_grammar.h"

namespace sluice::ulb {
namespace {

/// Advances behind one element of the grammar, nested ones included.
void skip(const char*& grammar) noexcept {
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

/// Most eligible items of a COMPOUND: Read chunks of a call, and Write chunks of its reply. What its
/// operations return has no exact bound; their repetition is the business of owners and sessions.
constexpr service::ProcedureBinding kProcedures[] = {{},
                                                     {.eligible_arguments = 255, .eligible_results = 255}};
constexpr std::string_view kNames[] = {"null", "compound"};
constexpr service::Binding kNfs4{.program = kNfsProgram,
                                 .version = kNfs4Version,
                                 .procedures = kProcedures,
                                 .unusable = service::UnusableChunks::Ignore,
                                 .name = "nfs",
                                 .procedure_names = kNames,
                                 .max_results_bytes = &max_nfs4_results,
                                 .argument_items = &nfs4_argument_items,
                                 .result_items = &nfs4_result_items,
                                 .expected_items = &expected_nfs4_items,
                                 .checks_positions = true};

bool ends(char letter) noexcept {
  return letter == '\0' || letter == ']' || letter == ')' || letter == ';';
}

}  // namespace

CompoundWalker::CompoundWalker(std::span<const std::byte> message, What what,
                               service::PlacedResults* placed) noexcept
    : message_(message), what_(what), placed_(placed), in_(message) {
  if (is_reply()) {
    status_ = in_.u32();
    opaque();  // tag
  } else {
    opaque();
    minor_version_ = in_.u32();
    if (what == What::CallbackCall) in_.u32();  // callback_ident
  }
  operations_ = left_ = in_.u32();
  // Each operation takes at least its number.
  failed_ = !in_.ok() || left_ > in_.remaining() / xdr::kUnit;
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
  if (failed_ || left_ == 0) return false;
  operation = {.begin = in_.position()};
  operation.number = in_.u32();
  const char* grammar = grammar_of(operation.number, operation);
  if (grammar == nullptr) {
    failed_ = true;
    return false;
  }
  if (is_reply()) {
    xdr::Reader ahead = in_;
    operation.status = ahead.u32();
  }
  current_ = &operation;
  sequence(grammar);
  current_ = nullptr;
  operation.end = in_.position();
  --left_;
  failed_ = !good();
  return !failed_;
}

void CompoundWalker::sequence(const char*& grammar) noexcept {
  while (!ends(*grammar) && good()) element(grammar);
}

void CompoundWalker::element(const char*& grammar) noexcept {
  switch (*grammar) {
    case 'w':
      in_.u32();
      ++grammar;
      return;
    case 'd':
      in_.u64();
      ++grammar;
      return;
    case 'o':
      opaque();
      ++grammar;
      return;
    case 'E':
      item();
      ++grammar;
      return;
    case '[':
      return repeated(grammar, true);
    case '*':
      return repeated(grammar, false);
    case '{':
      return choice(grammar);
    default:
      failed_ = true;  // unreachable: the grammar is a constant
      return;
  }
}

void CompoundWalker::item() noexcept {
  if (placed_ != nullptr && current_ != nullptr) {
    xdr::Reader ahead = in_;
    const std::uint32_t bytes = ahead.u32();
    if (ahead.ok() && placed_->placed(items_++, bytes)) {
      in_ = ahead;
      current_->has_item = current_->item_placed = true;
      current_->item_at = in_.position();
      current_->item_bytes = bytes;
      return;
    }
  }
  const auto data = opaque();
  if (!in_.ok() || current_ == nullptr) return;
  current_->has_item = true;
  current_->item_at = static_cast<std::size_t>(data.data() - message_.data());
  current_->item_bytes = static_cast<std::uint32_t>(data.size());
}

std::span<const std::byte> CompoundWalker::opaque() noexcept {
  return in_.opaque(static_cast<std::uint32_t>(std::min<std::size_t>(in_.remaining(), ~std::uint32_t{0})));
}

bool CompoundWalker::boolean() noexcept {
  const std::uint32_t word = in_.u32();
  failed_ |= word > 1;
  return good() && word == 1;
}

/// "[x]" is preceded by a count; each element of "*(x)" by a word that says whether one more follows.
void CompoundWalker::repeated(const char*& grammar, bool counted) noexcept {
  const char* const body = grammar + (counted ? 1 : 2);
  std::uint32_t count = counted ? in_.u32() : 0;
  // Every element takes at least one word.
  if (counted && count > in_.remaining() / xdr::kUnit) failed_ = true;
  while (good() && (counted ? count-- > 0 : boolean())) {
    const char* each = body;
    sequence(each);
  }
  skip(grammar);
}

void CompoundWalker::choice(const char*& grammar) noexcept {
  const std::uint32_t wanted = in_.u32();
  const char* arm = grammar + 1;
  bool taken = false;
  while (good() && !taken && *arm != '}') {
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
      while (*arm != ';') skip(arm);
      ++arm;
    }
  }
  if (!taken) failed_ = true;
  skip(grammar);
}

const service::Binding& nfs4_binding() noexcept {
  return kNfs4;
}

}  // namespace sluice::ulb
