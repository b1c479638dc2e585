// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/common.h"
#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/events.h"
#include "controlplane/admin/slow_calls.h"
#include "controlplane/events/event.h"

namespace sluice::admin {
namespace {

Field time_of_day() {
  return text("time", "RFC 3339, in UTC, with microseconds");
}

Fields states() {
  Fields fields;
  for (std::size_t i = 1; i < segment::kSlotStateCount; ++i)
    fields.push_back(number(segment::kSlotStates[i], "in this state").if_any());
  return fields;
}

/// `more`: other values of the status.
Fields call_fields(const std::vector<std::string>& more = {}) {
  std::vector<std::string> statuses = words(segment::kCallStatuses, segment::kCallStatusCount);
  statuses.insert(statuses.end(), more.begin(), more.end());
  return {whole("xid", "the call's XID"),
          text("procedure", "its name, or program.version.procedure where there is none"),
          text("status", "what RPC has answered").one_of(statuses),
          whole("call_bytes", "the arguments, with those in chunks"),
          whole("reply_bytes", "the results, with those in chunks"),
          number("total_us", "from its arrival until its reply was sent, in microseconds"),
          object("states_us", "how long it was in each state, in microseconds; none where no time went",
                 states())};
}

Declaration trace_read() {
  return {.name = "trace_read",
          .needed = Access::Read,
          .summary = "Calls that were recorded of a connection; its reactor keeps the last " +
                     std::to_string(segment::TraceRing::kRecords) + " of all its connections.",
          .parameters =
              {reactor_number(), connection_number(),
               whole("from", "the number of the first to look at, as another answer's next").or_else(0)},
          .result = object("", "",
                           {whole("next", "where to read on"),
                            rows("calls", "the calls, in the order of their ends", call_fields())}),
          .errors = {"There is no such reactor."}};
}

Declaration slow_calls() {
  return {
      .name = "slow_calls",
      .needed = Access::Read,
      .summary = "Calls that took longer than [observability] slow_call_ms, at most " +
                 std::to_string(kSlowCallsPerAnswer) + " of each reactor: ask again until there are none.",
      .parameters = {list("from", "another answer's next; empty: from the oldest on", whole("", "a number"))
                         .at_most(segment::kMaxReactors)
                         .or_else(Json::array())},
      .result =
          object("", "",
                 {list("next", "where to read on, for each reactor", whole("", "a number")),
                  whole("missed", "calls that were overwritten before they were read"),
                  rows("calls", "the calls, in the order of their ends",
                       joined(call_fields({"connection_lost"}),
                              {time_of_day(), reactor_number(), connection_number(),
                               text("peer", "the client's address"),
                               text("class", "the class of clients that it is in"),
                               number("upstream_us", "spent by an upstream, in microseconds").if_any()}))})};
}

Declaration events_read() {
  return {
      .name = "events_read",
      .needed = Access::Read,
      .summary = "Events of the journal, at most " + std::to_string(kEventsPerAnswer) +
                 " of them: ask again until there are none.",
      .parameters = {whole("since", "the sequence number of the first, as another answer's next").or_else(1)},
      .result = object(
          "", "",
          {whole("journal", "names the journal: another means that sequence numbers begin again at 1"),
           whole("next", "where to read on"),
           whole("missed", "events that were asked for and are no longer there"),
           rows("events", "the events, in the order in which they happened",
                {whole("sequence", "its number"), time_of_day(),
                 text("severity", "how bad it is")
                     .one_of(words(events::kSeverities, std::size(events::kSeverities))),
                 text("event", "what has happened; names are stable"),
                 map("fields", "with whom and why, by the event's kind", {.type = Type::Scalar}),
                 whole("suppressed", "events of its kind before it that were only counted").if_any()})})};
}

}  // namespace

Chapter declare_calls() {
  const auto trace = [](std::string name, std::string summary, Fields result) {
    return Declaration{.name = std::move(name),
                       .summary = std::move(summary),
                       .parameters = {reactor_number(), connection_number()},
                       .result = object("", "", std::move(result)),
                       .errors = {kNoSuchConnection}};
  };
  return {.title = "Events and calls",
          .methods = {events_read(), slow_calls(),
                      trace("trace_start", "Records a connection's calls from now on.",
                            {whole("next", "the first that is recorded, for trace_read's from")}),
                      trace("trace_stop", "Records a connection's calls no longer.", {}), trace_read()}};
}

}  // namespace sluice::admin
