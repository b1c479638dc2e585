// SPDX-License-Identifier: Apache-2.0
#include "controlplane/json/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

namespace sluice {
namespace {

using Library = nlohmann::json;

/// Builds a value from the SAX events of nlohmann's parser.
class Builder final : public nlohmann::json_sax<Library> {
 public:
  Json take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Library::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    problem_ = error.what();
    return false;
  }

 private:
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == Json::kMaxDepth) {
      problem_ = "The text is nested more than " + std::to_string(Json::kMaxDepth) + " levels deep.";
      return false;
    }
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  /// Adds a value to the innermost open container. Pointers to parents stay valid while a child is open,
  /// because only the innermost container grows.
  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_object()) return parent[key_] = std::move(value);
    parent.push_back(std::move(value));
    return *(parent.end() - 1);
  }

  Json root_;
  std::vector<Json*> open_;
  std::string key_;
  std::string problem_;
};

/// Returns the JSON text of a string or number.
std::string leaf(const Library& value, Json::Encoding encoding) {
  try {
    return value.dump(-1, ' ', encoding == Json::Encoding::Ascii,
                      encoding == Json::Encoding::Strict ? Library::error_handler_t::strict
                                                         : Library::error_handler_t::replace);
  } catch (const Library::type_error& error) {
    throw JsonError(error.what());
  }
}

class Writer {
 public:
  Writer(std::string& out, int indent, Json::Encoding encoding)
      : out_(out), indent_(indent), encoding_(encoding) {}

  void write(const Json& value) {
    if (value.is_object())
      write_list(value.items(), '{', '}', [this](const Json::Member& member) {
        out_ += leaf(member.key, encoding_) + (indent_ < 0 ? ":" : ": ");
        write(member.value);
      });
    else if (value.is_array())
      write_list(value, '[', ']', [this](const Json& element) { write(element); });
    else
      write_leaf(value);
  }

 private:
  template <typename List, typename Each>
  void write_list(const List& list, char open, char close, const Each& write_one) {
    out_ += open;
    ++depth_;
    bool first = true;
    for (const auto& element : list) {
      if (!first) out_ += ',';
      first = false;
      break_line();
      write_one(element);
    }
    --depth_;
    if (!first) break_line();
    out_ += close;
  }
  void write_leaf(const Json& value) {
    if (value.is_null())
      out_ += "null";
    else if (value.is_boolean())
      out_ += value.get<bool>() ? "true" : "false";
    else if (value.is_number_unsigned())
      out_ += std::to_string(value.get<std::uint64_t>());
    else if (value.is_number_integer())
      out_ += std::to_string(value.get<std::int64_t>());
    else if (value.is_number_float())
      out_ += leaf(value.get<double>(), encoding_);
    else
      out_ += leaf(value.get<std::string>(), encoding_);
  }
  void break_line() {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_) * depth_, ' ');
  }

  std::string& out_;
  const int indent_;
  const Json::Encoding encoding_;
  std::size_t depth_ = 0;
};

auto place_of(const Json::Object& members, std::string_view key) {
  return std::lower_bound(
      members.begin(), members.end(), key,
      [](const Json::Member& member, std::string_view wanted) { return member.key < wanted; });
}

[[noreturn]] void throw_type(const char* wanted) {
  throw JsonError(std::string("A JSON value is not ") + wanted + '.');
}

}  // namespace

Json::Json() noexcept : value_(nullptr) {}
Json::Json(std::nullptr_t) noexcept : value_(nullptr) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json::Json(std::initializer_list<Element> elements) : Json(array(elements)) {
  Array& pairs = std::get<Array>(value_);
  const bool all_pairs = std::all_of(pairs.begin(), pairs.end(), [](const Json& pair) {
    return pair.is_array() && pair.size() == 2 && pair[0].is_string();
  });
  if (!all_pairs) return;
  Json made = object();
  for (Json& pair : pairs) made[std::get<std::string>(pair[0].value_)] = std::move(pair[1]);
  *this = std::move(made);
}

Json Json::array() {
  Json made;
  made.value_ = Array();
  return made;
}

Json Json::array(std::initializer_list<Element> elements) {
  Json made = array();
  for (const Element& element : elements) made.push_back(std::move(element.value_));
  return made;
}

Json Json::object() {
  Json made;
  made.value_ = Object();
  return made;
}

Json Json::parse(std::string_view text) {
  Builder builder;
  if (!Library::sax_parse(text, &builder)) throw JsonError(builder.problem());
  return builder.take();
}

std::optional<Json> Json::try_parse(std::string_view text) {
  Builder builder;
  if (!Library::sax_parse(text, &builder)) return std::nullopt;
  return builder.take();
}

std::string Json::dump(int indent, Encoding encoding) const {
  std::string out;
  Writer(out, indent, encoding).write(*this);
  return out;
}

std::ostream& operator<<(std::ostream& out, const Json& value) {
  return out << value.dump();
}

Json Json::of(bool value) {
  Json made;
  made.value_ = value;
  return made;
}

Json Json::of(std::int64_t value) {
  Json made;
  made.value_ = value;
  return made;
}

Json Json::of(std::uint64_t value) {
  Json made;
  made.value_ = value;
  return made;
}

Json Json::of(double value) {
  Json made;
  made.value_ = value;
  return made;
}

bool Json::as_bool() const {
  if (!is_boolean()) throw_type("true or false");
  return std::get<bool>(value_);
}

std::int64_t Json::as_signed() const {
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return *value;
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<std::int64_t>(*value);
  return static_cast<std::int64_t>(as_double());
}

std::uint64_t Json::as_unsigned() const {
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<std::uint64_t>(*value);
  return static_cast<std::uint64_t>(as_double());
}

double Json::as_double() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*value);
  throw_type("a number");
}

const std::string& Json::as_string() const {
  if (!is_string()) throw_type("a string");
  return std::get<std::string>(value_);
}

std::size_t Json::size() const {
  if (const auto* values = std::get_if<Array>(&value_)) return values->size();
  if (const auto* members = std::get_if<Object>(&value_)) return members->size();
  return is_null() ? 0 : 1;
}

const Json* Json::begin() const {
  if (const auto* values = std::get_if<Array>(&value_)) return values->data();
  if (!is_null()) throw_type("an array");
  return nullptr;
}

Json* Json::begin() {
  return const_cast<Json*>(std::as_const(*this).begin());
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array();
  if (!is_array()) throw_type("an array");
  std::get<Array>(value_).push_back(std::move(value));
}

void Json::erase(const Json* first, const Json* last) {
  Array& values = std::get<Array>(value_);
  values.erase(values.begin() + (first - values.data()), values.begin() + (last - values.data()));
}

const Json& Json::element(std::size_t index) const {
  if (!is_array()) throw_type("an array");
  const Array& values = std::get<Array>(value_);
  if (index >= values.size()) throw JsonError("A JSON array has no element " + std::to_string(index) + '.');
  return values[index];
}

std::span<const Json::Member> Json::items() const {
  if (const auto* members = std::get_if<Object>(&value_)) return *members;
  if (!is_null()) throw_type("an object");
  return {};
}

const Json* Json::find(std::string_view key) const {
  const auto* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  const auto found = place_of(*members, key);
  return found != members->end() && found->key == key ? &found->value : nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) throw JsonError("A JSON value has no member '" + std::string(key) + "'.");
  return *found;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  if (!is_object()) throw_type("an object");
  Object& members = std::get<Object>(value_);
  const auto found = members.begin() + (place_of(members, key) - members.cbegin());
  if (found != members.end() && found->key == key) return found->value;
  return members.insert(found, Member{std::string(key), {}})->value;
}

void Json::update(const Json& other) {
  for (const auto& [key, value] : other.items()) (*this)[key] = value;
}

void Json::erase(std::string_view key) {
  if (!is_object()) return;
  Object& members = std::get<Object>(value_);
  const auto found = place_of(members, key);
  if (found != members.end() && found->key == key) members.erase(found);
}

bool Json::equal(const Json& one, const Json& other) {
  if (one.is_number() && other.is_number()) return !less(one, other) && !less(other, one);
  return one.value_ == other.value_;
}

bool Json::less(const Json& one, const Json& other) {
  if (one.is_number() && other.is_number()) {
    if (one.is_number_float() || other.is_number_float()) return one.as_double() < other.as_double();
    const bool one_negative = !one.is_number_unsigned() && one.as_signed() < 0;
    const bool other_negative = !other.is_number_unsigned() && other.as_signed() < 0;
    if (one_negative != other_negative) return one_negative;
    return one_negative ? one.as_signed() < other.as_signed() : one.as_unsigned() < other.as_unsigned();
  }
  if (one.is_string() && other.is_string()) return one.as_string() < other.as_string();
  return one.value_.index() < other.value_.index();
}

}  // namespace sluice
