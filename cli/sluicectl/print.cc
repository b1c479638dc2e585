// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/print.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

namespace sluice::ctl {
namespace {

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value.get<double>());
    return text;
  }
  if (value.is_number()) return value.dump();
  std::string text;
  if (value.is_array()) {
    for (const Json& part : value) text += (text.empty() ? "" : ",") + text_of(part);
  } else {
    for (const auto& [key, part] : value.items())
      text += (text.empty() ? "" : " ") + key + '=' + text_of(part);
  }
  return text.empty() ? "-" : text;
}

bool is_table(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_object();
}

void print_table(const Json& rows, const std::string& indent) {
  if (rows.empty()) {
    std::cout << indent << "none\n";
    return;
  }
  std::vector<std::string> columns;
  std::vector<std::size_t> widths;
  for (const Json& row : rows)
    for (const auto& [key, value] : row.items())
      if (std::find(columns.begin(), columns.end(), key) == columns.end())
        columns.push_back(key), widths.push_back(key.size());
  for (const Json& row : rows)
    for (std::size_t c = 0; c < columns.size(); ++c)
      widths[c] = std::max(widths[c], text_of(row.value(columns[c], Json())).size());
  const auto line = [&](auto&& cell) {
    std::string text = indent;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::string part = cell(c);
      text += part + std::string(widths[c] - part.size() + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    std::cout << text << '\n';
  };
  line([&](std::size_t c) { return columns[c]; });
  for (const Json& row : rows) line([&](std::size_t c) { return text_of(row.value(columns[c], Json())); });
}

void print_pairs(const Json& object, const std::string& indent) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object() && !value.empty()) {
      std::cout << indent << key << ":\n";
      print_pairs(value, indent + "  ");
    } else if (is_table(value)) {
      std::cout << indent << key << ":\n";
      print_table(value, indent + "  ");
    } else {
      std::cout << indent << key << ": " << text_of(value) << '\n';
    }
  }
}

}  // namespace

void print(const Json& result, bool as_json) {
  if (as_json)
    std::cout << result.dump(2) << '\n';
  else if (result.is_array())
    print_table(result, "");
  else
    print_pairs(result, "");
}

}  // namespace sluice::ctl
