// SPDX-License-Identifier: Apache-2.0
//
// Declarations of the values of the admin interface, which are parameters and fields of results. Requests
// are validated against them, tests validate answers against them, and the reference is generated from
// them. Value types; any thread. The declaration of a method for its clients consists of such descriptions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "controlplane/json/json.h"

namespace sluice::admin {

enum class Type : std::uint8_t {
  Any,
  Scalar,  ///< a Boolean, a number or text
  Boolean,
  Unsigned,  ///< a nonnegative integer
  Number,
  Text,
  Object,  ///< an object with the declared fields
  Map,     ///< an object whose keys are data (lower-case names)
  List,
};

struct Field;
using Fields = std::vector<Field>;

/// Declaration of a parameter or of a field of a result. A Field without a name declares an element of a list
/// or map.
struct Field {
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

  std::string name{};
  Type type = Type::Any;
  std::string meaning{};
  Fields parts{};                 ///< fields of an Object, or the one element type of a Map or List
  std::uint64_t most = kNoLimit;  ///< maximum value of an Unsigned, or maximum number of elements of a List
  std::vector<std::string> choices{};  ///< allowed values of a Text; any value if empty
  Json by_default{};                   ///< default of a parameter; null if the parameter is required
  bool optional = false;               ///< true if some results lack the field
  bool nullable = false;
  bool empty_or_whole = false;  ///< true if an Object has either no field or all required ones

  // Builders. Each returns a copy of the field with one attribute changed.
  Field at_most(std::uint64_t limit) const;
  Field one_of(std::vector<std::string> values) const;
  Field or_else(Json value) const;
  Field if_any() const;
  Field or_null() const;
  Field or_empty() const;
};

Field flag(std::string name, std::string meaning);
Field whole(std::string name, std::string meaning);
/// Returns a whole number that fits in 32 bits.
Field whole32(std::string name, std::string meaning);
Field number(std::string name, std::string meaning);
Field text(std::string name, std::string meaning);
Field object(std::string name, std::string meaning, Fields fields);
Field map(std::string name, std::string meaning, Field element);
Field list(std::string name, std::string meaning, Field element);
/// Returns a list of objects with these fields.
Field rows(std::string name, std::string meaning, Fields fields);

/// Joins words with commas, as in "a, b, c".
std::string join(const std::vector<std::string>& words);
/// Describes the values that `declared` allows, such as "a whole number of at most 7".
std::string kind_of(const Field& declared);
/// Validates `value`. Returns an empty string, or the reason why `value` does not match. `where` is the path
/// of the value in that message.
std::string mismatch(const Field& declared, const Json& value, const std::string& where = "result");
/// Returns the declaration as a JSON Schema (draft 7).
Json json_schema(const Field& declared);

/// Access level of a client. Each level includes the previous one.
enum class Access : std::uint8_t { None, Read, Change };

/// Declaration of a method of the admin interface for its clients: name, required access, parameters,
/// result and errors.
struct Declaration {
  std::string name{};
  Access needed = Access::Change;
  std::string summary{};  ///< one sentence
  Fields parameters{};    ///< all parameters; requests with others are refused
  Field result{};
  std::vector<std::string> errors{};  ///< conditions of kMethodFailed, a sentence each
};

}  // namespace sluice::admin
