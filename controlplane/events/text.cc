// SPDX-License-Identifier: Apache-2.0
#include "controlplane/events/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace sluice::events {
namespace {

Json value_of(const Field& field) {
  return std::visit([](const auto& value) { return Json(value); }, field.value);
}

std::string escaped(const Json& value) {
  return value.dump(-1, Json::Encoding::Ascii);
}

/// Bare where it needs no quotes, else as a JSON string.
std::string to_word(const Field& field) {
  const auto* text = std::get_if<std::string>(&field.value);
  if (text == nullptr) return escaped(value_of(field));
  const bool bare = !text->empty() && std::all_of(text->begin(), text->end(), [](unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) || std::strchr("._-:/", c) != nullptr;
  });
  return bare && text->find('\0') == std::string::npos ? *text : escaped(*text);
}

/// A field whose value may hold newlines: its name, its length as eight bytes, little-endian, and the value.
void add_journald(std::string& out, const std::string& name, const std::string& value) {
  out += name + '\n';
  for (int shift = 0; shift < 64; shift += 8)
    out += static_cast<char>(static_cast<std::uint64_t>(value.size()) >> shift & 0xff);
  out += value + '\n';
}

}  // namespace

std::string time_of(std::uint64_t wall_ns) {
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  const auto seconds = static_cast<std::time_t>(wall_ns / kSecondNs);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  length += static_cast<std::size_t>(std::snprintf(text.data() + length, text.size() - length, ".%06uZ",
                                                   static_cast<unsigned>(wall_ns % kSecondNs / 1000)));
  return {text.data(), length};
}

std::string to_log_line(const Event& event) {
  std::string line = event.kind->sentence;
  line += std::string(": event=") + event.kind->name;
  for (const Field& field : event.fields) line += std::string(" ") + field.name + '=' + to_word(field);
  if (event.suppressed > 0) line += " suppressed=" + std::to_string(event.suppressed);
  return line;
}

Json to_json(const Event& event) {
  Json fields = Json::object();
  for (const Field& field : event.fields) fields[field.name] = value_of(field);
  Json result = {{"sequence", event.sequence},
                 {"time", time_of(event.wall_ns)},
                 {"severity", kSeverities[static_cast<std::size_t>(event.kind->severity)]},
                 {"event", event.kind->name},
                 {"fields", fields}};
  if (event.suppressed > 0) result["suppressed"] = event.suppressed;
  return result;
}

std::string to_json_line(const Event& event, std::uint64_t journal) {
  Json line = to_json(event);
  line["journal"] = journal;
  return escaped(line) + '\n';
}

std::string to_journald(const Event& event) {
  static constexpr const char* kPriorities[] = {"6", "4", "3"};
  std::string out;
  add_journald(out, "MESSAGE", to_log_line(event));
  add_journald(out, "PRIORITY", kPriorities[static_cast<std::size_t>(event.kind->severity)]);
  add_journald(out, "SYSLOG_IDENTIFIER", "sluice-controlplane");
  add_journald(out, "SLUICE_EVENT", event.kind->name);
  add_journald(out, "SLUICE_SEQUENCE", std::to_string(event.sequence));
  for (const Field& field : event.fields) {
    std::string name = std::string("SLUICE_") + field.name;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const auto* text = std::get_if<std::string>(&field.value);
    add_journald(out, name, text != nullptr ? *text : escaped(value_of(field)));
  }
  return out;
}

}  // namespace sluice::events
