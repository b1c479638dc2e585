// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/events.h"

#include <cstdint>

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/events/text.h"

namespace sluice::admin {
namespace {

Json read_events(events::Journal& journal, const Json& parameters) {
  const events::Journal::Part part =
      journal.read(parameters.at("since").get<std::uint64_t>(), kEventsPerAnswer);
  Json list = Json::array();
  for (const events::Event& event : part.events) list.push_back(events::to_json(event));
  return {{"journal", journal.id()}, {"next", part.next}, {"missed", part.missed}, {"events", list}};
}

}  // namespace

void add_events(Registry& registry, events::Journal& journal) {
  registry.add(declared("events_read"),
               [&journal](const Json& parameters) { return read_events(journal, parameters); });
}

}  // namespace sluice::admin
