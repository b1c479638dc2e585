// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/common.h"
#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/config/config.h"
#include "controlplane/config/describe.h"

namespace sluice::admin {
namespace {

constexpr const char* kKeyOfFile = "the key of this name";

Fields changes() {
  return {list("in_force", "keys whose changes take effect without a restart", text("", "a key")),
          list("restart_control_plane", "keys that want a restart of the control plane", text("", "a key")),
          list("restart_both_planes", "keys that want a restart of both planes", text("", "a key"))};
}

/// With an entry in each list of tables, and with every key that is shown only where it is set.
config::Config with_everything(config::Config config) {
  config.block.vlan = 1;
  config.block.service_level = 0;
  config.block.exports[0].in_use = 1;
  config.block.upstream_count = 1;
  config.choose_cpus = false;
  config.classes.resize(2);
  config.authentication_hosts.resize(1);
  return config;
}

Fields keys_of(const Json& table, const Json& usual);

/// `usual` is what the defaults have there: a key that they lack is optional.
Field key_of(const std::string& name, const Json& value, const Json& usual) {
  if (value.is_object()) return object(name, "the table of this name", keys_of(value, usual));
  if (value.is_array() && !value.empty() && value[0].is_object())
    return rows(name, "the tables of this name", keys_of(value[0], value[0]));
  const bool numbers = value.is_array() && !value.empty() && value[0].is_number();
  if (value.is_array()) return list(name, kKeyOfFile, numbers ? whole("", "") : text("", ""));
  if (value.is_boolean()) return flag(name, kKeyOfFile);
  if (value.is_number_integer()) return whole(name, kKeyOfFile);
  return value.is_number() ? number(name, kKeyOfFile) : text(name, kKeyOfFile);
}

Fields keys_of(const Json& table, const Json& usual) {
  Fields keys;
  for (const auto& [name, value] : table.items()) {
    const bool always = usual.contains(name);
    const Field key = key_of(name, value, always ? usual[name] : Json::object());
    keys.push_back(always ? key : key.if_any());
  }
  return keys;
}

/// The names are those of the file, and configuration.md says what they mean.
Declaration config_show() {
  const config::Config usual = config::parse("", "defaults");
  Fields keys = keys_of(config::describe(with_everything(usual)), config::describe(usual));
  keys.push_back(object("saved", "changes that were saved (saved_changes)",
                        {flag("drain", "whether the appliance drains from its start on"),
                         list("export", "exports that were added", text("", "a path")),
                         list("removed_exports", "of the configuration's exports", text("", "a path"))}));
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
