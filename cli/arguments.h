// SPDX-License-Identifier: Apache-2.0
//
// Options, flags and subcommands of a program. CLI11 reads them; its header takes longer to compile than most
// of our sources, so that only arguments.cc includes it. Setup; variables have to live until they are parsed.
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

/// An option of a command, which owns it. By default it is optional and takes any value of its type.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}
  Option& required();
  /// The help shows what the variable holds now.
  Option& shows_default();
  Option& from_to(int least, int most);
  Option& one_of(std::initializer_list<int> values);
  Option& one_of(std::initializer_list<const char*> values);

 private:
  CLI::Option* option_;
};

/// A program or one of its subcommands. A handle: the Program owns what it refers to.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Command subcommand(const std::string& name, const std::string& help);
  void requires_subcommand();
  /// Options of this command may follow a subcommand.
  void options_fall_through();
  /// Called in parse(), after the subcommands' own.
  void on_chosen(Function<void()> action);
  /// Whether it was on the command line.
  bool chosen() const;

  /// "--name", or "name" for a positional argument.
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
  /// --version prints Sluice's version, and `libraries` behind it, where given: "DPDK 22.11.1".
  explicit Program(const std::string& description, const std::string& libraries = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Command& command() { return command_; }
  /// Fills the variables. A value when the program ends with that: help or the version was asked for, or the
  /// usage is wrong, which has been said.
  std::optional<int> parse(int argc, char** argv);

 private:
  Owned<CLI::App> app_;
  Command command_;
};

}  // namespace sluice::cli
