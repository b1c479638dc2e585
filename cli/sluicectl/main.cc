// SPDX-License-Identifier: Apache-2.0
//
// sluicectl: asks the control plane over its admin socket.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

namespace {

using nlohmann::json;

enum ExitCode { kOk = 0, kErrorAnswer = 1, kUnreachable = 3 };

class Unreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One request, one answer.
json ask(const std::string& path, const std::string& method, const json& parameters = json::object()) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw Unreachable(
        "Cannot reach the control plane at " + path + " (" + std::strerror(errno) +
        "): is sluice-controlplane running? Use --socket if its configuration names another path.");
  const std::string request =
      json{{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", parameters}}.dump() + "\n";
  std::string answer;
  char buffer[4096];
  ssize_t bytes = ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  while (bytes > 0 && answer.find('\n') == std::string::npos &&
         (bytes = ::recv(fd, buffer, sizeof buffer, 0)) > 0)
    answer.append(buffer, static_cast<std::size_t>(bytes));
  ::close(fd);
  json parsed = json::parse(answer, nullptr, false);
  if (parsed.is_discarded()) throw Unreachable("The control plane at " + path + " closed the connection.");
  return parsed;
}

std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "-";
  if (value.is_number_float()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value.get<double>());
    return text;
  }
  if (!value.is_object()) return value.dump();
  std::string text;
  for (const auto& [key, part] : value.items()) text += (text.empty() ? "" : "/") + text_of(part);
  return text;
}

void print_pairs(const json& object, const std::string& indent) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      std::cout << indent << key << ":\n";
      print_pairs(value, indent + "  ");
    } else if (value.is_array() && !value.empty() && value[0].is_object()) {
      std::cout << indent << key << ":\n";
      for (const json& element : value) {
        std::cout << indent << "  -";
        for (const auto& [name, part] : element.items()) std::cout << ' ' << name << '=' << text_of(part);
        std::cout << '\n';
      }
    } else {
      std::cout << indent << key << ": " << text_of(value) << '\n';
    }
  }
}

void print_table(const json& rows) {
  if (rows.empty()) {
    std::cout << "none\n";
    return;
  }
  std::vector<std::string> columns;
  std::vector<std::size_t> widths;
  for (const json& row : rows)
    for (const auto& [key, value] : row.items())
      if (std::find(columns.begin(), columns.end(), key) == columns.end())
        columns.push_back(key), widths.push_back(key.size());
  for (const json& row : rows)
    for (std::size_t c = 0; c < columns.size(); ++c)
      widths[c] = std::max(widths[c], text_of(row.value(columns[c], json())).size());
  const auto line = [&](auto&& cell) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::string text = cell(c);
      std::cout << text << std::string(widths[c] - text.size() + 2, ' ');
    }
    std::cout << '\n';
  };
  line([&](std::size_t c) { return columns[c]; });
  for (const json& row : rows) line([&](std::size_t c) { return text_of(row.value(columns[c], json())); });
}

void print(const json& result, bool as_json) {
  if (as_json)
    std::cout << result.dump(2) << '\n';
  else if (result.is_array())
    print_table(result);
  else
    print_pairs(result, "");
}

struct CaptureOptions {
  std::string file;
  unsigned seconds = 10;
  std::uint64_t packets = 0;
  std::uint32_t snap = 9216;
};

json result_of(const json& answer) {
  if (answer.contains("error"))
    throw std::runtime_error(answer["error"].value("message", "The control plane answered with an error."));
  return answer["result"];
}

/// Starts a capture, waits for its end, and returns what came of it.
json capture(const std::string& socket, const CaptureOptions& options) {
  const json started = result_of(ask(socket, "capture_start",
                                     {{"file", std::filesystem::absolute(options.file).string()},
                                      {"packets", options.packets},
                                      {"snap", options.snap}}));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  constexpr auto kPatience = std::chrono::seconds(5);
  bool stopped = false;
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    json status = result_of(ask(socket, "capture_status"));
    const bool ours = status.value("id", std::uint64_t{0}) == started["id"].get<std::uint64_t>();
    if (ours && status["state"] == "failed") throw std::runtime_error(status.value("problem", ""));
    if (ours && status["state"] == "done") return status;
    const auto now = std::chrono::steady_clock::now();
    if (now > end + kPatience) throw std::runtime_error("The data plane does not answer: is it running?");
    if (now > end && !stopped) {
      ask(socket, "capture_stop");
      stopped = true;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string socket = "/run/sluice/admin.sock";
  bool as_json = false;
  std::string method;
  CLI::App app{
      "Administers Sluice through its control plane.\nExit codes: 0 done, 1 an error was answered, 3 the "
      "control plane cannot be reached, others: wrong usage."};
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--socket", socket, "Admin socket of the control plane")->capture_default_str();
  app.add_flag("--json", as_json, "Print JSON");
  for (const auto& [name, help] : std::vector<std::pair<std::string, std::string>>{
           {"status", "Both planes at a glance"},
           {"connections",
            "Connections: peer, version, credits, inline thresholds; properties of version 2 as segment "
            "bytes/segments/"
            "Send bytes/Receive bytes/reverse calls"},
           {"exports", "Exports: space, files, calls"},
           {"reactors", "Polling cores and what they did"},
           {"topology", "Processors and NUMA nodes, and which of them poll"},
           {"memory", "Where the data plane's memory goes"},
           {"counters", "All counters of each reactor"},
           {"devices", "What each reactor's device counts"},
           {"version", "Version of the control plane"}})
    app.add_subcommand(name, help)->callback([&method, name = name] { method = name; });
  CaptureOptions options;
  CLI::App* capturing =
      app.add_subcommand("capture", "Write a device's packets to a pcapng file, for Wireshark");
  capturing->add_option("file", options.file, "File, written by the data plane")->required();
  capturing->add_option("--seconds", options.seconds, "Duration")->capture_default_str();
  capturing->add_option("--packets", options.packets, "End after so many packets; 0: no limit");
  capturing->add_option("--snap", options.snap, "Bytes kept of each packet")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    if (capturing->parsed()) {
      print(capture(socket, options), as_json);
      return kOk;
    }
    const json answer = ask(socket, method);
    if (answer.contains("error")) {
      std::cerr << answer["error"].value("message", "The control plane answered with an error.") << '\n';
      return kErrorAnswer;
    }
    print(answer["result"], as_json);
    return kOk;
  } catch (const Unreachable& error) {
    std::cerr << error.what() << '\n';
    return kUnreachable;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return kErrorAnswer;
  }
}
