// SPDX-License-Identifier: Apache-2.0
//
// Options, flags and subcommands of a program. CLI11 parses them. Its header takes longer to compile than
// most of our sources, so only arguments.cc includes it. Used at setup. Variables must outlive parse().
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/base/function.h"
#include "dataplane/base/owned.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sluice::cli {

/// An option of a command, which owns it. By default it is optional and accepts any value of its type.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}
  Option& required();
  /// Shows the current value of the variable in the help.
  Option& shows_default();
  Option& from_to(int least, int most);
  Option& one_of(std::initializer_list<int> values);
  Option& one_of(std::initializer_list<const char*> values);

 private:
  CLI::Option* option_;
};

/// Handle of a program or of one of its subcommands. The Program owns the object.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Command subcommand(const std::string& name, const std::string& help);
  void requires_subcommand();
  /// Allows options of this command after a subcommand.
  void options_fall_through();
  /// Sets the action that parse() calls after the actions of the subcommands.
  void on_chosen(Function<void()> action);
  /// Reports whether the command was on the command line.
  bool chosen() const;

  /// Adds an option. `name` is "--name", or "name" for a positional argument.
  Option option(const std::string& name, std::string& value, const std::string& help);
  Option option(const std::string& name, std::vector<std::string>& values, const std::string& help);
  Option option(const std::string& name, int& value, const std::string& help);
  Option option(const std::string& name, std::uint16_t& value, const std::string& help);
  Option option(const std::string& name, std::uint32_t& value, const std::string& help);
  Option option(const std::string& name, std::uint64_t& value, const std::string& help);
  Option option(const std::string& name, double& value, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);

 private:
  CLI::App* app_;
};

class Program {
 public:
  /// Creates a program. --version prints Sluice's version, followed by `libraries` if given, such as "DPDK
  /// 22.11.1".
  explicit Program(const std::string& description, const std::string& libraries = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Command& command() { return command_; }
  /// Parses the arguments into the variables. If the help or the version was requested, or if the usage is
  /// wrong, prints a message and returns the exit status with which the program has to exit.
  std::optional<int> parse(int argc, char** argv);

 private:
  Owned<CLI::App> app_;
  Command command_;
};

}  // namespace sluice::cli
