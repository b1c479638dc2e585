// SPDX-License-Identifier: Apache-2.0
//
// A JSON value (RFC 8259). nlohmann/json parses and formats the text. Only json.cc includes that library,
// because it adds seconds to the compilation of each source. Members of an object are ordered by key. Json is
// a value type without shared state; any thread.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace sluice {

/// Misuse of a value: the text is not JSON, a member does not exist, or the value has another type. what() is
/// a sentence.
class JsonError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

class Json {
 public:
  class Element;
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  ///< ordered by key

  /// Treatment of bytes that are not UTF-8 and of characters outside ASCII.
  enum class Encoding {
    Strict,    ///< throws JsonError if a string is not UTF-8
    Replaced,  ///< replaces bytes that are not UTF-8 by U+FFFD
    Ascii,     ///< replaces as Replaced does, and escapes characters outside ASCII
  };
  /// Maximum nesting depth that parse() accepts.
  static constexpr std::size_t kMaxDepth = 64;

  Json() noexcept;
  Json(std::nullptr_t) noexcept;
  template <std::same_as<bool> T>
  Json(T value) : Json(of(value)) {}
  template <std::signed_integral T>
  Json(T value) : Json(of(static_cast<std::int64_t>(value))) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Json(T value) : Json(of(static_cast<std::uint64_t>(value))) {}
  template <std::floating_point T>
  Json(T value) : Json(of(static_cast<double>(value))) {}
  Json(const char* text);
  Json(std::string text);
  Json(std::string_view text);
  /// Converts other string types, such as fixed-size strings.
  template <typename T>
  requires(std::convertible_to<const T&, std::string_view> && !std::convertible_to<const T&, const char*> &&
           !std::same_as<T, std::string> && !std::same_as<T, std::string_view>) Json(const T& text)
      : Json(static_cast<std::string_view>(text)) {}
  template <typename T>
  Json(const std::vector<T>& values) : Json(array()) {
    for (const T& value : values) push_back(value);
  }
  /// Makes an object if every element is a pair of a string and a value, otherwise an array.
  Json(std::initializer_list<Element> elements);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  static Json array();
  static Json array(std::initializer_list<Element> elements);
  static Json object();
  /// Parses `text`. Throws JsonError with the position of the defect.
  static Json parse(std::string_view text);
  /// Parses `text`. Returns nothing if it is not JSON.
  static std::optional<Json> try_parse(std::string_view text);
  /// Formats the value on one line, or indented by `indent` spaces per level if `indent` is not negative.
  std::string dump(int indent = -1, Encoding encoding = Encoding::Strict) const;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  /// Type tests. Parsed integers that are not negative are unsigned; other integers keep the type that they
  /// were constructed from.
  bool is_number_unsigned() const { return std::holds_alternative<std::uint64_t>(value_); }
  bool is_number_integer() const {
    return is_number_unsigned() || std::holds_alternative<std::int64_t>(value_);
  }
  bool is_number_float() const { return std::holds_alternative<double>(value_); }
  bool is_number() const { return is_number_integer() || is_number_float(); }

  /// Returns the value as bool, a number, std::string, or a vector of these. Numbers are converted to T.
  /// Throws JsonError for any other type.
  template <typename T>
  T get() const;

  /// Returns the number of elements of an array or members of an object, 0 for null, and 1 for any other
  /// value.
  std::size_t size() const;
  bool empty() const { return size() == 0; }

  // Access to arrays. Null counts as an empty array, and push_back() turns it into one. The other functions
  // throw JsonError for other types.
  const Json* begin() const;
  const Json* end() const { return begin() + elements(); }
  Json* begin();
  Json* end() { return begin() + elements(); }
  void push_back(Json value);
  void erase(const Json* first, const Json* last);
  /// Returns the element at `index`. Throws JsonError if it does not exist.
  template <std::integral T>
  const Json& at(T index) const {
    return element(static_cast<std::size_t>(index));
  }
  template <std::integral T>
  const Json& operator[](T index) const {
    return at(index);
  }
  template <std::integral T>
  Json& operator[](T index) {
    return const_cast<Json&>(at(index));
  }
  const Json& back() const { return at(size() - 1); }
  Json& back() { return (*this)[size() - 1]; }

  // Access to objects. Null counts as an empty object, and operator[] turns it into one.
  std::span<const Member> items() const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// Returns null if the member does not exist or this value is no object.
  const Json* find(std::string_view key) const;
  /// Returns the member's value. Throws JsonError if it does not exist.
  const Json& at(std::string_view key) const;
  const Json& at(const char* key) const { return at(std::string_view(key)); }
  const Json& operator[](std::string_view key) const { return at(key); }
  /// Returns the member's value, and adds the member with the value null first if it does not exist.
  Json& operator[](std::string_view key);
  /// Copies the members of another object and overwrites those with the same keys.
  void update(const Json& other);
  void erase(std::string_view key);
  /// Returns the member's value as the type of `otherwise`, or `otherwise` if the member does not exist.
  template <typename T>
  T value(std::string_view key, const T& otherwise) const {
    const Json* found = find(key);
    return found != nullptr ? found->get<T>() : otherwise;
  }
  std::string value(std::string_view key, const char* otherwise) const {
    return value(key, std::string(otherwise));
  }

  /// Compares numbers by value, and values of different types by type.
  friend bool operator==(const Json& one, const Json& other) { return equal(one, other); }
  friend bool operator<(const Json& one, const Json& other) { return less(one, other); }

 private:
  static Json of(bool value);
  static Json of(std::int64_t value);
  static Json of(std::uint64_t value);
  static Json of(double value);
  bool as_bool() const;
  std::int64_t as_signed() const;
  std::uint64_t as_unsigned() const;
  double as_double() const;
  const std::string& as_string() const;
  const Json& element(std::size_t index) const;
  std::size_t elements() const { return is_array() ? size() : 0; }
  static bool equal(const Json& one, const Json& other);
  static bool less(const Json& one, const Json& other);

  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> value_;
};

/// Writes dump() to `out`.
std::ostream& operator<<(std::ostream& out, const Json& value);

struct Json::Member {
  std::string key;
  Json value;
  friend bool operator==(const Member&, const Member&) = default;
};

/// Element of a braced initializer list. Its value is moved out.
class Json::Element {
 public:
  template <typename T>
  requires(std::constructible_from<Json, T&&> && !std::same_as<std::remove_cvref_t<T>, Element>)
      // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): not for elements
      Element(T&& value)
      : value_(std::forward<T>(value)) {}
  Element(std::initializer_list<Element> elements) : value_(elements) {}

 private:
  friend class Json;
  mutable Json value_;
};

template <typename T>
T Json::get() const {
  if constexpr (std::is_same_v<T, Json>)
    return *this;
  else if constexpr (std::is_same_v<T, bool>)
    return as_bool();
  else if constexpr (std::is_same_v<T, std::string>)
    return as_string();
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(as_double());
  else if constexpr (std::is_signed_v<T>)
    return static_cast<T>(as_signed());
  else if constexpr (std::is_unsigned_v<T>)
    return static_cast<T>(as_unsigned());
  else {
    T values;
    for (const Json& element : *this) values.push_back(element.get<typename T::value_type>());
    return values;
  }
}

}  // namespace sluice
