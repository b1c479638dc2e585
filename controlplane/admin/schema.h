// SPDX-License-Identifier: Apache-2.0
//
// Declares values of the admin interface: what a parameter may be, and what a result holds. Requests are refused by these
// declarations, answers are held against them by tests, and the reference is made from them. Values; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "controlplane/json/json.h"

namespace sluice::admin {

enum class Type : std::uint8_t {
  Any,
  Scalar,  ///< true or false, a number, or text
  Boolean,
  Unsigned,  ///< a whole number, not negative
  Number,
  Text,
  Object,  ///< of the fields that are declared
  Map,     ///< an object whose keys are data: names in lower case
  List,
};

struct Field;
using Fields = std::vector<Field>;

/// A parameter, a field of a result, or, without a name, an element of a list or map.
struct Field {
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

  std::string name{};
  Type type = Type::Any;
  std::string meaning{};
  Fields parts{};                 ///< of an Object its fields, of a Map or List one: what each element is
  std::uint64_t most = kNoLimit;  ///< an Unsigned's greatest value, or a List's elements
  std::vector<std::string> choices{};  ///< of a Text; empty: any
  Json by_default{};                   ///< of a parameter that may be left out; null: it may not
  bool optional = false;               ///< not in every result
  bool nullable = false;
  bool empty_or_whole = false;  ///< an Object that may have none of its fields

  // Builders: each returns the field with one thing more.
  Field at_most(std::uint64_t limit) const;
  Field one_of(std::vector<std::string> values) const;
  Field or_else(Json value) const;
  Field if_any() const;
  Field or_null() const;
  Field or_empty() const;
};

Field flag(std::string name, std::string meaning);
Field whole(std::string name, std::string meaning);
/// One that fits in 32 bits.
Field whole32(std::string name, std::string meaning);
Field number(std::string name, std::string meaning);
Field text(std::string name, std::string meaning);
Field object(std::string name, std::string meaning, Fields fields);
Field map(std::string name, std::string meaning, Field element);
Field list(std::string name, std::string meaning, Field element);
/// A list of objects.
Field rows(std::string name, std::string meaning, Fields fields);

/// "a, b, c".
std::string join(const std::vector<std::string>& words);
/// What `value` would have to be: "a whole number of at most 7".
std::string kind_of(const Field& declared);
/// Why `value`, which came by the path `where`, is not as it is declared; empty: it is.
std::string mismatch(const Field& declared, const Json& value, const std::string& where = "result");
/// The declaration as a JSON Schema (draft 7).
Json json_schema(const Field& declared);

}  // namespace sluice::admin
