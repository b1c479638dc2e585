// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/exports.h"
#include "controlplane/admin/declarations/common.h"
#include "controlplane/admin/declarations/declarations.h"

namespace sluice::admin {
namespace {

Field path_parameter() {
  return text("path", "the export's path, which begins with '/'");
}

Declaration exports() {
  return {.name = "exports",
          .needed = Access::Read,
          .summary = "The exports: space, files, calls.",
          .result =
              rows("", "",
                   {text("path", "its path"), flag("read_only", "whether changes are refused"),
                    whole("used_bytes", "space in use"),
                    whole("quota_bytes", "the most that it may use; 0: as much as there is"),
                    whole("files", "files and folders"), whole("calls", "calls"),
                    whole("errors", "of those, answered with an error"),
                    whole("read_bytes", "read by clients"), whole("written_bytes", "written by clients"),
                    list("hosts", "hosts that may use it when they have authenticated themselves; empty: any",
                         text("", "a name"))})};
}

Declaration export_stats() {
  return {.name = "export_stats",
          .needed = Access::Read,
          .summary = "Calls of each export by procedure, of those that had any.",
          .parameters = {text("path", "only of this export; empty: of all").or_else("")},
          .result = rows("", "",
                         {text("path", "the export's path"), text("procedure", "the procedure's name"),
                          whole("calls", "calls"), whole("errors", "of those, answered with an error")})};
}

Field change_result() {
  return object("", "",
                {text("path", "the export's path"), flag("saved", "whether a restart keeps the change")});
}

Declaration export_add() {
  const Json usual = config::describe_export({});
  const auto key = [&](const Field& field) { return field.or_else(usual.at(field.name)); };
  return {.name = "export_add",
          .summary =
              "Adds an export, or changes the one of this path: what is not given is as in a configuration "
              "file that does not give it.",
          .parameters = {path_parameter(), key(flag("read_only", "whether changes are refused")),
                         key(flag("root_squash", "whether root becomes anonuid and anongid")),
                         key(flag("all_squash", "whether every user becomes anonuid and anongid")),
                         key(whole32("anonuid", "the user ID of users that are mapped")),
                         key(whole32("anongid", "the group ID of users that are mapped")),
                         key(whole("quota_mib", "the most that it may use, in MiB; 0: as much as there is")
                                 .at_most(config::kMaxQuotaMib)),
                         key(list("clients", "clients that may use it; empty: every one",
                                  text("", "an address or prefix"))
                                 .at_most(segment::kMaxAllowed)),
                         key(list("hosts",
                                  "hosts that may use it when they have authenticated themselves; empty: any",
                                  text("", "a name"))
                                 .at_most(segment::kMaxExportHosts)),
                         save_parameter()},
          .result = change_result(),
          .errors = {"A value is none that a configuration file may have.",
                     "There is no place for another export before the data plane is started again.",
                     "It cannot be saved; nothing has changed then."}};
}

Declaration export_remove() {
  return {.name = "export_remove",
          .summary = "Removes an export; its files are kept, for when it is added again.",
          .parameters = {path_parameter(), save_parameter()},
          .result = change_result(),
          .errors = {"There is no such export.", "It cannot be saved; nothing has changed then."}};
}

}  // namespace

Chapter declare_exports() {
  return {.title = "Exports", .methods = {exports(), export_stats(), export_add(), export_remove()}};
}

}  // namespace sluice::admin
