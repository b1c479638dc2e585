// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/debug_dump.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "cli/sluicectl/listing.h"

namespace sluice::ctl {
namespace {

/// Connections whose details are asked for, with two requests each. Of the others the dump has what the listing has.
constexpr std::size_t kMostDetailed = 1024;

/// Methods without parameters; each is a section of its name.
constexpr std::array kViews{
    "status",  "config_show",      "reactors",       "procedures",   "credits",   "counters",
    "devices", "memory",           "topology",       "exports",      "upstreams", "upstream_counters",
    "reverse", "reverse_counters", "capture_status", "export_stats", "slow_calls"};

/// Returns the value of `make`, or its error. Errors that end the dump are thrown.
template <typename Make>
Json or_explain(Make&& make) {
  try {
    return make();
  } catch (const Unreachable&) {
    throw;
  } catch (const Forbidden&) {
    throw;
  } catch (const std::runtime_error& error) {
    return {{"error", error.what()}};
  }
}

Json ask_or_explain(const Client& client, const std::string& method,
                    const Json& parameters = Json::object()) {
  return or_explain([&] { return client.ask(method, parameters); });
}

/// Where the program of a process is; null to who may not know.
Json program_of(const Json& plane) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/" + plane.value("pid", Json(0)).dump() + "/exe";
  const ssize_t bytes = ::readlink(link.c_str(), path.data(), path.size());
  return bytes > 0 ? Json(std::string(path.data(), static_cast<std::size_t>(bytes))) : Json(nullptr);
}

Json system() {
  utsname name{};
  ::uname(&name);
  Json result = {{"kernel", name.release}, {"machine", name.machine}};
  std::ifstream release("/etc/os-release");
  constexpr std::string_view kKey = "PRETTY_NAME=";
  for (std::string line; std::getline(release, line);)
    if (line.starts_with(kKey)) result["release"] = line.substr(kKey.size());
  return result;
}

Json list_or_explain(const Client& client, const std::string& list) {
  return or_explain([&] {
    Json all = Json::array();
    for_each_page(client, list, Json::object(), [&](const Json& rows) {
      for (const Json& row : rows) all.push_back(row);
      return true;
    });
    return all;
  });
}

/// Returns all connections. The first kMostDetailed have their details and the calls that their trace has recorded.
Json connections(const Client& client) {
  Json all = list_or_explain(client, "connections");
  if (!all.is_array()) return all;
  for (std::size_t i = 0; i < std::min(all.size(), kMostDetailed); ++i) {
    const Json number = {{"reactor", all[i]["reactor"]}, {"connection", all[i]["connection"]}};
    Json shown = ask_or_explain(client, "connection_show", number);
    const Json trace = ask_or_explain(client, "trace_read", number);
    shown["trace"] = trace.value("calls", trace);
    if (shown.contains("error")) shown.update(number);  // it has ended since
    all[i] = std::move(shown);
  }
  return all;
}

}  // namespace

Json debug_dump(const Client& client) {
  Json dump;
  for (const char* view : kViews) dump[view] = ask_or_explain(client, view);
  dump["properties"] = list_or_explain(client, "properties");
  dump["connections"] = connections(client);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  dump["time_s"] = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  dump["system"] = system();
  const Json& status = dump["status"];
  const Json control_plane = status.value("control_plane", Json::object());
  const Json data_plane = status.value("data_plane", Json::object());
  dump["versions"] = {{"sluicectl", SLUICE_VERSION},
                      {"control_plane", status.value("version", Json())},
                      {"control_plane_program", program_of(control_plane)},
                      {"data_plane", data_plane.value("version", Json())},
                      {"data_plane_program", program_of(data_plane)}};
  return dump;
}

void write_new_file(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    throw std::runtime_error("Cannot create " + path + " (" + std::strerror(errno) +
                             "): name a file that does not exist, in a folder that you may write to.");
  std::size_t written = 0;
  ssize_t bytes = 0;
  while (written < text.size() && (bytes = ::write(fd, text.data() + written, text.size() - written)) > 0)
    written += static_cast<std::size_t>(bytes);
  const bool closed = ::close(fd) == 0;
  if (written < text.size() || !closed)
    throw std::runtime_error("Cannot write all of " + path + ": is the file system full?");
}

}  // namespace sluice::ctl
