// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/common.h"
#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/config/config.h"
#include "controlplane/config/describe.h"

namespace sluice::admin {
namespace {

Fields changes() {
  return {list("in_force", "keys whose changes take effect without a restart", text("", "a key")),
          list("restart_control_plane", "keys that want a restart of the control plane", text("", "a key")),
          list("restart_both_planes", "keys that want a restart of both planes", text("", "a key"))};
}

/// Keys of the file: that page has them, and they are the same here.
Declaration config_show() {
  Fields keys;
  const nlohmann::json usual = config::describe(config::parse("", "defaults"));
  for (const auto& [name, value] : usual.items()) {
    const std::string meaning = value.is_structured() ? "the table of this name" : "the key of this name";
    if (value.is_object())
      keys.push_back(map(name, meaning, {}));
    else if (value.is_array())
      keys.push_back(list(name, "the tables of this name", map("", "a table", {})));
    else
      keys.push_back(text(name, meaning));
  }
  keys.push_back(map("saved", "changes that were saved (saved_changes)", {}));
  return {.name = "config_show",
          .needed = Access::Read,
          .summary = "All keys of the configuration in force, as [configuration](configuration.md) has them.",
          .result = object("", "", keys)};
}

Declaration config_check() {
  return {.name = "config_check",
          .needed = Access::Read,
          .summary = "Checks a configuration file's text, and says what it would change. Nothing is changed.",
          .parameters = {text("text", "the file's content").or_else(""),
                         text("name", "what defects call the file").or_else("configuration")},
          .result = object("", "",
                           {flag("ok", "whether it has no defect"),
                            object("changes", "what it would change; none with a defect", changes()).if_any(),
                            text("defects", "a line for each; none without a defect").if_any()}),
          .errors = {kTooMuchToDo}};
}

Declaration config_reload() {
  return {
      .name = "config_reload",
      .summary =
          "Reads the configuration file again, and applies what can take effect without a restart; calls go "
          "on. The data plane has applied it when status has configuration.in_force.",
      .result = object("", "", changes()),
      .errors = {"The file has defects, or cannot be read; the configuration in force stays."}};
}

Declaration log_level() {
  const Field level =
      text("level", "the level; debug shows no more than info").one_of({"debug", "info", "warn", "error"});
  return {.name = "log_level",
          .summary = "Sets the log level of both planes, until the next reload.",
          .parameters = {level},
          .result = object("", "", {text("log_level", "the level")})};
}

}  // namespace

Chapter declare_configuration() {
  return {.title = "Configuration", .methods = {config_show(), config_check(), config_reload(), log_level()}};
}

}  // namespace sluice::admin
