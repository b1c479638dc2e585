// SPDX-License-Identifier: Apache-2.0
#include "dataplane/log/log.h"

#include <fmt/args.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>

namespace sluice::log {
namespace {

spdlog::level::level_enum number_of(Level level) {
  return static_cast<spdlog::level::level_enum>(std::min(level, Level::Off));
}

}  // namespace

void set_level(Level level) {
  spdlog::set_level(number_of(level));
}

Level level() {
  return static_cast<Level>(spdlog::get_level());
}

Level level_named(std::string_view name) {
  return static_cast<Level>(spdlog::level::from_str(std::string(name)));
}

void write(Level level, std::string_view format, std::span<const Argument> arguments) {
  if (!spdlog::should_log(number_of(level))) return;
  fmt::dynamic_format_arg_store<fmt::format_context> values;
  for (const Argument& argument : arguments) {
    switch (argument.kind()) {
      case Argument::Kind::Signed:
        values.push_back(argument.as_signed());
        break;
      case Argument::Kind::Unsigned:
        values.push_back(argument.as_unsigned());
        break;
      case Argument::Kind::Real:
        values.push_back(argument.as_real());
        break;
      case Argument::Kind::Text:
        values.push_back(argument.as_text());
        break;
    }
  }
  write(level, fmt::vformat(format, values));
}

void write(Level level, std::string_view line) {
  spdlog::default_logger_raw()->log(number_of(level), line);
}

}  // namespace sluice::log
