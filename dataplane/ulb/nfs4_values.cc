// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ulb/nfs4_values.h"

#include "dataplane/base/small_algorithms.h"

namespace sluice::ulb {
namespace {

/// Advances behind one element of the grammar, nested ones included.
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

/// Words up to the first value that has no fixed size; advances there.
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
      in_.fail();  // unreachable: the grammar is a constant
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

/// "[x]" is preceded by a count; each element of "*(x)" by a word that says whether one more follows.
void ValueReader::repeated(const char*& grammar, bool counted) noexcept {
  const char* const body = grammar + (counted ? 1 : 2);
  std::uint32_t count = counted ? in_.u32() : 0;
  // Every element takes at least one word.
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
