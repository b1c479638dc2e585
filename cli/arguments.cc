// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cli/output.h"

namespace sluice::cli {

Option& Option::required() {
  option_->required();
  return *this;
}
Option& Option::shows_default() {
  option_->capture_default_str();
  return *this;
}
Option& Option::from_to(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}
Option& Option::one_of(std::initializer_list<int> values) {
  option_->check(CLI::IsMember(std::vector<int>(values)));
  return *this;
}
Option& Option::one_of(std::initializer_list<const char*> values) {
  option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end())));
  return *this;
}

Command Command::subcommand(const std::string& name, const std::string& help) {
  return Command(*app_->add_subcommand(name, help));
}
void Command::requires_subcommand() {
  app_->require_subcommand(1);
}
void Command::options_fall_through() {
  app_->fallthrough();
}
void Command::on_chosen(Function<void()> action) {
  app_->callback(std::move(action));
}
bool Command::chosen() const {
  return app_->parsed();
}

Option Command::option(const std::string& name, std::string& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  return Option(*app_->add_option(name, values, help));
}
Option Command::option(const std::string& name, int& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, std::uint16_t& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, std::uint32_t& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, std::uint64_t& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
Option Command::option(const std::string& name, double& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}
void Command::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

Program::Program(const std::string& description, const std::string& libraries)
    : app_(make_owned<CLI::App>(description)), command_(*app_) {
  app_->set_version_flag("--version",
                         "Sluice " SLUICE_VERSION + (libraries.empty() ? std::string() : ", " + libraries));
}
Program::~Program() = default;

std::optional<int> Program::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return finish_output(app_->exit(error), 1);
  }
}

// --- Output

namespace {

int first_error = 0;  ///< errno; zero if there was none or it is unknown

}  // namespace

bool flush_output() noexcept {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (first_error == 0) first_error = errno;
  return flushed && std::ferror(stdout) == 0 && std::cout.good();
}

int finish_output(int status, int failed) noexcept {
  if (flush_output()) return status;
  std::fprintf(stderr, "Standard output could not be written (%s). The output is incomplete.\n",
               first_error != 0 ? std::strerror(first_error) : "write error");
  return failed;
}

}  // namespace sluice::cli
