// SPDX-License-Identifier: Apache-2.0
//
// The log of a process. spdlog and fmt write it; only log.cc includes them, so that a source that logs does not compile
// their templates again. Any thread; not for the message path, since a line is formatted where it is logged.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace sluice::log {

/// Severity of a line; the numbers are those of ConfigBlock::log_level.
enum class Level : std::uint32_t { Debug = 1, Info = 2, Warning = 3, Error = 4, Critical = 5, Off = 6 };

/// Lines below this level are dropped. Off at the most.
void set_level(Level level);
Level level();
/// The level of this name in the configuration: debug, info, warn or error. Off for any other.
Level level_named(std::string_view name);

/// A value for a "{}" of a format. Refers to strings, so it lives no longer than the call that it is an argument of.
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

/// A literal with one "{}" for each of `Count` arguments, which the compiler checks.
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

/// Writes a line with `arguments` in place of the "{}" of `format`.
void write(Level level, std::string_view format, std::span<const Argument> arguments);
/// Writes one line. A control character in the text, which may come from a peer or a file, is written as \xNN, so that the
/// text cannot add lines to the log or change a terminal.
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
