// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/sysfs.h"

#include <filesystem>
#include <fstream>

namespace sluice::card_check {

namespace fs = std::filesystem;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  line.erase(line.find_last_not_of(" \t\r") + 1);
  return line;
}

std::string target_name(const std::string& link) {
  std::error_code failed;
  return fs::read_symlink(link, failed).filename().string();
}

Json known(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Counters read_counters(const std::string& folder) {
  Counters counters;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    std::ifstream file(at->path());
    std::uint64_t value = 0;
    if (file >> value) counters.emplace(at->path().filename().string(), value);
  }
  return counters;
}

Json differences(const Counters& before, const Counters& after) {
  Json changed = Json::object();
  for (const auto& [name, value] : after) {
    const auto earlier = before.find(name);
    const std::uint64_t from = earlier != before.end() ? earlier->second : 0;
    if (value != from) changed[name] = static_cast<std::int64_t>(value - from);
  }
  return changed;
}

}  // namespace sluice::card_check
