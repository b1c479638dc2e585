// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/machine.h"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace sluice::config {
namespace {

using Defects = std::string;

bool is_directory(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

/// `key` is a file that Sluice makes, so its folder has to be there.
void check_new_file(Defects& defects, const std::string& key, const std::string& path) {
  if (path.empty()) return;
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == 0 ? "/" : path.substr(0, slash);
  if (is_directory(path))
    defects += key + " is '" + path + "', which is a directory: name a file in it.\n";
  else if (!is_directory(folder))
    defects += key + " is '" + path + "', and there is no directory '" + folder +
               "': make it, or name another file.\n";
}

void check_group(Defects& defects, const std::string& key, const std::string& name) {
  constexpr std::size_t kMaxEntryBytes = 1u << 20;
  std::vector<char> room(4096);
  group entry{};
  group* found = nullptr;
  int error = 0;
  while ((error = ::getgrnam_r(name.c_str(), &entry, room.data(), room.size(), &found)) == ERANGE &&
         room.size() < kMaxEntryBytes)
    room.resize(2 * room.size());
  if (!name.empty() && error == 0 && found == nullptr)
    defects += key + " is '" + name +
               "', and this machine has no such group: groupadd makes it, \"\" is for none.\n";
}

}  // namespace

void check_processors(const Config& config, std::uint32_t processors) {
  if (config.choose_cpus) return;
  for (std::uint32_t i = 0; i < config.block.reactors; ++i)
    if (config.block.cpus[i] >= processors)
      throw ConfigError("cpus in [reactor] names processor " + std::to_string(config.block.cpus[i]) +
                        ", and the last one of this machine is " + std::to_string(processors - 1) +
                        ": name others, or leave cpus out.\n");
}

void check_machine(const Config& config) {
  const long processors = ::sysconf(_SC_NPROCESSORS_CONF);
  if (processors > 0) check_processors(config, static_cast<std::uint32_t>(processors));
  Defects defects;
  check_group(defects, "change_group in [admin]", config.admin_change_group);
  check_group(defects, "read_group in [admin]", config.admin_read_group);
  check_new_file(defects, "saved_changes", config.saved_changes);
  check_new_file(defects, "file in [events]", config.events_file);
  if (config.locks_enabled) check_new_file(defects, "state in [locks]", config.locks_state);
  if (is_directory(config.admin_socket))
    defects +=
        "socket in [admin] is '" + config.admin_socket + "', which is a directory: name a file in it.\n";
  for (const HostEntry& host : config.authentication_hosts)
    for (const std::string& file : host.key_files)
      if (is_directory(file))
        defects += "key_files of host '" + host.name + "' has '" + file +
                   "', which is a directory: name the file.\n";
  if (!defects.empty()) throw ConfigError(defects);
}

}  // namespace sluice::config
