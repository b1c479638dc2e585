// SPDX-License-Identifier: Apache-2.0
//
// Text formats of events: a log line, JSON, and a journald entry. Quotes, newlines, control characters and
// bytes that are not UTF-8 are escaped or replaced, so that a peer cannot break out of a field. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/events/event.h"
#include "controlplane/json/json.h"

namespace sluice::events {

/// Formats a time as in RFC 3339, in UTC, with microseconds.
std::string time_of(std::uint64_t wall_ns);
/// Formats `A connection request is refused: event=connection_refused peer=192.0.2.7 reason=too_fast`,
/// without a line end and in ASCII only.
std::string to_log_line(const Event& event);
/// Returns {"sequence", "time", "severity", "event", "fields"}, and "suppressed" if it is not zero.
Json to_json(const Event& event);
/// Formats to_json() as one line with its end, and adds "journal", which together with "sequence" identifies
/// an event uniquely.
std::string to_json_line(const Event& event, std::uint64_t journal);
/// Formats one datagram of journald's native protocol: MESSAGE, PRIORITY, SLUICE_EVENT and a SLUICE_ field
/// for each field of the event.
std::string to_journald(const Event& event);

}  // namespace sluice::events
