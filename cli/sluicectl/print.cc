// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/print.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

namespace sluice::ctl {
namespace {

std::string cell(const Json& value) {
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
    for (const Json& part : value) text += (text.empty() ? "" : ",") + cell(part);
  } else {
    for (const auto& [key, part] : value.items()) text += (text.empty() ? "" : " ") + key + '=' + cell(part);
  }
  return text.empty() ? "-" : text;
}

bool is_table(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_object();
}

/// Columns of a table, in the order in which they first occur in a row.
struct Columns {
  std::vector<std::string>& names;
  std::vector<std::size_t>& widths;

  /// Widens the columns for `rows` and adds columns that only these rows have. Returns true if a column was
  /// added.
  bool add(const Json& rows) {
    const std::size_t before = names.size();
    for (const Json& row : rows)
      for (const auto& [key, value] : row.items())
        if (std::find(names.begin(), names.end(), key) == names.end())
          names.push_back(key), widths.push_back(key.size());
    for (const Json& row : rows)
      for (std::size_t c = 0; c < names.size(); ++c)
        widths[c] = std::max(widths[c], cell(row.value(names[c], Json())).size());
    return names.size() > before;
  }
  template <typename Cell>
  void print_line(const std::string& indent, const Cell& cell) const {
    std::string text = indent;
    for (std::size_t c = 0; c < names.size(); ++c) {
      const std::string part = cell(c);
      text += part + std::string(widths[c] - part.size() + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    std::cout << text << '\n';
  }
  void print_header(const std::string& indent) const {
    print_line(indent, [&](std::size_t c) { return names[c]; });
  }
  void print_rows(const Json& rows, const std::string& indent) const {
    for (const Json& row : rows)
      print_line(indent, [&](std::size_t c) { return cell(row.value(names[c], Json())); });
  }
};

void print_table(const Json& rows, const std::string& indent) {
  if (rows.empty()) {
    std::cout << indent << "none\n";
    return;
  }
  std::vector<std::string> names;
  std::vector<std::size_t> widths;
  Columns columns{names, widths};
  columns.add(rows);
  columns.print_header(indent);
  columns.print_rows(rows, indent);
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
      std::cout << indent << key << ": " << cell(value) << '\n';
    }
  }
}

}  // namespace

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print(const Json& result, bool as_json) {
  if (as_json)
    std::cout << result.dump(2) << '\n';
  else if (result.is_array())
    print_table(result, "");
  else
    print_pairs(result, "");
}

void RowPrinter::print_table(const Json& rows) {
  Columns columns{columns_, widths_};
  if (columns.add(rows)) columns.print_header("");
  columns.print_rows(rows, "");
}

/// Writes these elements in the format of dump() for the elements of an array.
void RowPrinter::print_json(const Json& rows) {
  bool first = empty_;
  for (const Json& row : rows) {
    std::cout << (first ? "[\n  " : ",\n  ");
    for (const char character : row.dump(2)) {
      std::cout << character;
      if (character == '\n') std::cout << "  ";
    }
    first = false;
  }
}

void RowPrinter::print(const Json& rows) {
  as_json_ ? print_json(rows) : print_table(rows);
  empty_ = empty_ && rows.empty();
}

void RowPrinter::finish() const {
  if (as_json_)
    std::cout << (empty_ ? "[]\n" : "\n]\n");
  else if (empty_)
    std::cout << "none\n";
}

}  // namespace sluice::ctl
