// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/events.h"

#include <cstdint>

#include "controlplane/events/text.h"

namespace sluice::admin {
namespace {

using nlohmann::json;

json read_events(events::Journal& journal, const json& parameters) {
  const events::Journal::Part part =
      journal.read(parameters.value("since", std::uint64_t{1}), kEventsPerAnswer);
  json list = json::array();
  for (const events::Event& event : part.events) list.push_back(events::to_json(event));
  return {{"journal", journal.id()}, {"next", part.next}, {"missed", part.missed}, {"events", list}};
}

}  // namespace

void add_events(Registry& registry, events::Journal& journal) {
  registry.add("events_read", Access::Read,
               [&journal](const json& parameters) { return read_events(journal, parameters); });
}

}  // namespace sluice::admin
