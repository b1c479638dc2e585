// SPDX-License-Identifier: Apache-2.0
//
// Fields and error sentences that several methods share.
#pragma once

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/admin/declaration.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

inline Field reactor_number() {
  return whole32("reactor", "the reactor's number");
}
inline Field connection_number() {
  return whole32("connection", "the connection's number on its reactor");
}
inline Field age_s(std::string meaning) {
  return number("age_s", std::move(meaning) + ", in seconds");
}
inline Field save_parameter() {
  return flag("save", "whether to keep the change after restarts, in the file that saved_changes names")
      .or_else(false);
}

/// Returns a field for each counter of a table, named like the counter.
template <typename Infos>
Fields counters_of(const Infos& infos) {
  Fields fields;
  for (const auto& info : infos) fields.push_back(whole(std::string(info.name), std::string(info.help)));
  return fields;
}

inline Fields joined(Fields one, const Fields& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

inline std::vector<std::string> words(const char* const* first, std::size_t count) {
  return {first, first + count};
}

inline constexpr const char* kNoSuchConnection = "There is no such connection.";
inline constexpr const char* kTooMuchToDo = "The control plane is overloaded; a later request may succeed.";

}  // namespace sluice::admin
