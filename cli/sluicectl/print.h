// SPDX-License-Identifier: Apache-2.0
//
// Results as text for a terminal, or as JSON. Writes to standard output.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "controlplane/json/json.h"

namespace sluice::ctl {

/// Returns the content of a string, or any other value as JSON text.
std::string text_of(const Json& value);

/// Prints a list of objects as a table, and an object as lines of key and value. With `as_json`, prints any
/// value as JSON.
void print(const Json& result, bool as_json);

/// Prints a list of objects in parts. As JSON, the output equals that of print() for the whole list. As a
/// table, columns are only aligned with earlier parts, and a part with additional columns has its own header.
class RowPrinter {
 public:
  explicit RowPrinter(bool as_json) : as_json_(as_json) {}

  void print(const Json& rows);
  /// Ends the list. Call once, after the last part.
  void finish() const;

 private:
  void print_table(const Json& rows);
  void print_json(const Json& rows);

  const bool as_json_;
  bool empty_ = true;
  std::vector<std::string> columns_;
  std::vector<std::size_t> widths_;
};

}  // namespace sluice::ctl
