// SPDX-License-Identifier: Apache-2.0
//
// Events as text: a line of the log, JSON, and an entry of journald. Whatever a peer has put into a field stays inside of it:
// quotes, newlines, control characters and bytes that are not UTF-8 are escaped or replaced. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/events/event.h"
#include "controlplane/json/json.h"

namespace sluice::events {

/// RFC 3339, in UTC, with microseconds.
std::string time_of(std::uint64_t wall_ns);
/// `A connection request is refused: event=connection_refused peer=192.0.2.7 reason=too_fast`, without a line end. All ASCII.
std::string to_log_line(const Event& event);
/// {"sequence", "time", "severity", "event", "fields"}, and "suppressed" where there are such.
Json to_json(const Event& event);
/// The same as one line with its end, and with "journal", which together with "sequence" names an event for ever.
std::string to_json_line(const Event& event, std::uint64_t journal);
/// One datagram of journald's own protocol: MESSAGE, PRIORITY, SLUICE_EVENT and a SLUICE_ field for each of the event's.
std::string to_journald(const Event& event);

}  // namespace sluice::events
