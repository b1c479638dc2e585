// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/schema.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace sluice::admin {
namespace {

constexpr std::string_view kKeyCharacters = "abcdefghijklmnopqrstuvwxyz0123456789_";
constexpr const char* kKeyPattern = "^[a-z0-9_]+$";

bool is_unsigned(const Json& value) {
  return value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
}

bool has_type(const Field& declared, const Json& value) {
  switch (declared.type) {
    case Type::Any:
      return true;
    case Type::Scalar:
      return value.is_boolean() || value.is_number() || value.is_string();
    case Type::Boolean:
      return value.is_boolean();
    case Type::Unsigned:
      return is_unsigned(value) && value.get<std::uint64_t>() <= declared.most;
    case Type::Number:
      return value.is_number();
    case Type::Text:
      return value.is_string() &&
             (declared.choices.empty() ||
              std::count(declared.choices.begin(), declared.choices.end(), value.get<std::string>()) > 0);
    case Type::Object:
    case Type::Map:
      return value.is_object();
    case Type::List:
      return value.is_array() && value.size() <= declared.most;
  }
  return false;
}

std::string said(const std::string& one, const char* two, const std::string& three) {
  return one + two + three;
}

std::string mismatch_in_object(const Field& declared, const Json& value, const std::string& where) {
  if (declared.empty_or_whole && value.empty()) return "";
  for (const Field& part : declared.parts)
    if (!part.optional && !value.contains(part.name)) return said(where, " lacks ", part.name);
  for (const auto& [key, held] : value.items()) {
    const auto part = std::find_if(declared.parts.begin(), declared.parts.end(),
                                   [&key = key](const Field& one) { return one.name == key; });
    if (part == declared.parts.end()) return said(where, " has no field ", key);
    std::string found = mismatch(*part, held, said(where, ".", key));
    if (!found.empty()) return found;
  }
  return "";
}

std::string mismatch_in_map(const Field& declared, const Json& value, const std::string& where) {
  for (const auto& [key, held] : value.items()) {
    if (key.empty() || key.find_first_not_of(kKeyCharacters) != std::string::npos)
      return said(where, " has a key that is no name: ", key);
    std::string found = mismatch(declared.parts.at(0), held, said(where, ".", key));
    if (!found.empty()) return found;
  }
  return "";
}

std::string mismatch_in_list(const Field& declared, const Json& value, const std::string& where) {
  for (std::size_t i = 0; i < value.size(); ++i) {
    std::string found = mismatch(declared.parts.at(0), value[i], said(where, "[", std::to_string(i)) + ']');
    if (!found.empty()) return found;
  }
  return "";
}

Json schema_of_object(const Field& declared) {
  Json schema = {
      {"properties", Json::object()}, {"required", Json::array()}, {"additionalProperties", false}};
  for (const Field& part : declared.parts) {
    schema["properties"][part.name] = json_schema(part);
    if (!part.optional) schema["required"].push_back(part.name);
  }
  return schema;
}

const char* schema_type(Type type) {
  switch (type) {
    case Type::Any:
    case Type::Scalar:
      return "";
    case Type::Boolean:
      return "boolean";
    case Type::Unsigned:
      return "integer";
    case Type::Number:
      return "number";
    case Type::Text:
      return "string";
    case Type::Object:
    case Type::Map:
      return "object";
    case Type::List:
      return "array";
  }
  return "";
}

}  // namespace

Field Field::at_most(std::uint64_t limit) const {
  Field made = *this;
  made.most = limit;
  return made;
}
Field Field::one_of(std::vector<std::string> values) const {
  Field made = *this;
  made.choices = std::move(values);
  return made;
}
Field Field::or_else(Json value) const {
  Field made = *this;
  made.by_default = std::move(value);
  return made;
}
Field Field::if_any() const {
  Field made = *this;
  made.optional = true;
  return made;
}
Field Field::or_null() const {
  Field made = *this;
  made.nullable = true;
  return made;
}
Field Field::or_empty() const {
  Field made = *this;
  made.empty_or_whole = true;
  return made;
}

Field flag(std::string name, std::string meaning) {
  return {.name = std::move(name), .type = Type::Boolean, .meaning = std::move(meaning)};
}
Field whole(std::string name, std::string meaning) {
  return {.name = std::move(name), .type = Type::Unsigned, .meaning = std::move(meaning)};
}
Field whole32(std::string name, std::string meaning) {
  return whole(std::move(name), std::move(meaning)).at_most(std::numeric_limits<std::uint32_t>::max());
}
Field number(std::string name, std::string meaning) {
  return {.name = std::move(name), .type = Type::Number, .meaning = std::move(meaning)};
}
Field text(std::string name, std::string meaning) {
  return {.name = std::move(name), .type = Type::Text, .meaning = std::move(meaning)};
}
Field object(std::string name, std::string meaning, Fields fields) {
  return {.name = std::move(name),
          .type = Type::Object,
          .meaning = std::move(meaning),
          .parts = std::move(fields)};
}
Field map(std::string name, std::string meaning, Field element) {
  return {.name = std::move(name), .type = Type::Map, .meaning = std::move(meaning), .parts = {element}};
}
Field list(std::string name, std::string meaning, Field element) {
  return {.name = std::move(name), .type = Type::List, .meaning = std::move(meaning), .parts = {element}};
}
Field rows(std::string name, std::string meaning, Fields fields) {
  return list(std::move(name), std::move(meaning), object("", "", std::move(fields)));
}

std::string join(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

std::string kind_of(const Field& declared) {
  switch (declared.type) {
    case Type::Any:
      return "any value";
    case Type::Scalar:
      return "true or false, a number, or text";
    case Type::Boolean:
      return "true or false";
    case Type::Unsigned:
      return declared.most == Field::kNoLimit ? "a whole number"
                                              : "a whole number of at most " + std::to_string(declared.most);
    case Type::Number:
      return "a number";
    case Type::Text:
      return declared.choices.empty() ? "text" : "one of " + join(declared.choices);
    case Type::Object:
      return "an object";
    case Type::Map:
      return "an object of names";
    case Type::List:
      return (declared.most == Field::kNoLimit ? "a list"
                                               : "a list of at most " + std::to_string(declared.most)) +
             ", each " + kind_of(declared.parts.at(0));
  }
  return "?";
}

std::string mismatch(const Field& declared, const Json& value, const std::string& where) {
  if (value.is_null() && declared.nullable) return "";
  if (!has_type(declared, value)) return where + " has to be " + kind_of(declared);
  if (declared.type == Type::Object) return mismatch_in_object(declared, value, where);
  if (declared.type == Type::Map) return mismatch_in_map(declared, value, where);
  if (declared.type == Type::List) return mismatch_in_list(declared, value, where);
  return "";
}

Json json_schema(const Field& declared) {
  Json schema = declared.type == Type::Object ? schema_of_object(declared) : Json::object();
  if (!declared.meaning.empty()) schema["description"] = declared.meaning;
  if (declared.type == Type::Scalar)
    schema["type"] = {"boolean", "number", "string"};
  else if (declared.type != Type::Any)
    schema["type"] = schema_type(declared.type);
  if (declared.nullable) schema["type"] = {schema["type"], "null"};
  if (declared.type == Type::Unsigned) schema["minimum"] = 0;
  if (declared.most != Field::kNoLimit)
    schema[declared.type == Type::List ? "maxItems" : "maximum"] = declared.most;
  if (!declared.choices.empty()) schema["enum"] = declared.choices;
  if (!declared.by_default.is_null()) schema["default"] = declared.by_default;
  if (declared.type == Type::List) schema["items"] = json_schema(declared.parts.at(0));
  if (declared.type == Type::Map) {
    schema["propertyNames"] = {{"pattern", kKeyPattern}};
    schema["additionalProperties"] = json_schema(declared.parts.at(0));
  }
  if (declared.empty_or_whole) {
    const Json empty = {{"type", "object"}, {"maxProperties", 0}};
    return {{"anyOf", {schema, empty}}};
  }
  return schema;
}

}  // namespace sluice::admin
