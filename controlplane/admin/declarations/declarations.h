// SPDX-License-Identifier: Apache-2.0
//
// The admin interface as data. The registration, the reference and the tests of each method use its
// declaration. Names are stable because clients depend on them. The fields and error sentences that several
// methods share are here as well. Any thread.
#pragma once

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/admin/schema.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Methods that the reference lists under one title.
struct Chapter {
  std::string title;
  std::vector<Declaration> methods;
};

/// Returns all methods, in the order of the reference.
const std::vector<Chapter>& chapters();
/// Returns the declaration of the method `name`. Throws std::logic_error if there is none.
const Declaration& declared(const std::string& name);

Chapter declare_status();
Chapter declare_connections();
Chapter declare_calls();
Chapter declare_exports();
Chapter declare_reactors();
Chapter declare_gateways();
Chapter declare_configuration();
Chapter declare_captures();

inline Field reactor_number() {
  return whole32("reactor", "the reactor's number");
}
inline Field connection_number() {
  return whole32("connection", "the connection's number on its reactor");
}
inline Field age_s(std::string meaning) {
  return number("age_s", std::move(meaning) + ", in seconds");
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
