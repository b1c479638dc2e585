// SPDX-License-Identifier: Apache-2.0
//
// Log of a process. spdlog and fmt write it. Only log.cc includes them, so that sources that log do not
// compile their templates. Any thread, but not on the message path, because the caller formats the line.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace sluice::log {

/// Severity of a line. The values are also used in ConfigBlock::log_level.
enum class Level : std::uint32_t { Debug = 1, Info = 2, Warning = 3, Error = 4, Critical = 5, Off = 6 };

/// Sets the minimum level. Lines below it are dropped. Values above Off count as Off.
void set_level(Level level);
Level level();
/// Returns the level that the configuration calls debug, info, warn or error. Returns Off for an unknown
/// name.
Level level_named(std::string_view name);

/// Value for a "{}" of a format. Refers to strings without copying them, so it is valid only during the call
/// to which it is passed.
class Argument {
 public:
  enum class Kind : std::uint8_t { Signed, Unsigned, Real, Text };

  template <std::signed_integral T>
  constexpr Argument(T value) : kind_(Kind::Signed), signed_(value) {}
  template <std::unsigned_integral T>
  constexpr Argument(T value) : kind_(Kind::Unsigned), unsigned_(value) {}
  template <std::floating_point T>
  constexpr Argument(T value) : kind_(Kind::Real), real_(static_cast<double>(value)) {}
  template <typename T>
  requires std::convertible_to<const T&, std::string_view>
  constexpr Argument(const T& value) : kind_(Kind::Text), text_(value) {}

  constexpr Kind kind() const { return kind_; }
  constexpr std::int64_t as_signed() const { return signed_; }
  constexpr std::uint64_t as_unsigned() const { return unsigned_; }
  constexpr double as_real() const { return real_; }
  constexpr std::string_view as_text() const { return text_; }

 private:
  Kind kind_;
  union {
    std::int64_t signed_;
    std::uint64_t unsigned_;
    double real_;
    std::string_view text_;
  };
};

/// Format literal with one "{}" for each of `Count` arguments. The compiler checks the number.
template <std::size_t Count>
class Format {
 public:
  template <std::size_t Size>
  consteval Format(const char (&text)[Size]) : text_(text, Size - 1) {
    std::size_t places = 0;
    for (std::size_t i = 0; i + 1 < text_.size(); ++i)
      places += text_[i] == '{' && text_[i + 1] == '}' ? 1 : 0;
    if (places != Count) throw "The format needs one {} for each argument.";
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

/// Writes one line, made by replacing each "{}" of `format` with an argument.
void write(Level level, std::string_view format, std::span<const Argument> arguments);
/// Writes one line. Writes control characters as \xNN, because the text may come from a peer or a file and
/// must not be able to add lines to the log or to control a terminal.
void write(Level level, std::string_view line);

template <std::size_t Count>
using FormatFor = std::type_identity_t<Format<Count>>;

template <typename... Arguments>
void info(FormatFor<sizeof...(Arguments)> format, const Arguments&... arguments) {
  const Argument list[] = {arguments..., 0};
  write(Level::Info, format.text(), std::span(list, sizeof...(Arguments)));
}
template <typename... Arguments>
void warn(FormatFor<sizeof...(Arguments)> format, const Arguments&... arguments) {
  const Argument list[] = {arguments..., 0};
  write(Level::Warning, format.text(), std::span(list, sizeof...(Arguments)));
}
template <typename... Arguments>
void error(FormatFor<sizeof...(Arguments)> format, const Arguments&... arguments) {
  const Argument list[] = {arguments..., 0};
  write(Level::Error, format.text(), std::span(list, sizeof...(Arguments)));
}

}  // namespace sluice::log
