// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/connection_reports.h"

#include <string>

#include "controlplane/events/kinds.h"
#include "dataplane/rpcrdma/link/close_reason.h"

namespace sluice::cm {
namespace {

/// Stable, for programs. `reason` may be any number.
const char* name_of(std::uint32_t reason) {
  using rpcrdma::CloseReason;
  if (reason > static_cast<std::uint32_t>(CloseReason::Silent)) return "unknown";
  switch (static_cast<CloseReason>(reason)) {
    case CloseReason::None:
      return "none";
    case CloseReason::PeerClosed:
      return "peer_closed";
    case CloseReason::LocalClose:
      return "local_close";
    case CloseReason::TransportError:
      return "transport_error";
    case CloseReason::RemoteAccess:
      return "remote_access";
    case CloseReason::InvalidationError:
      return "invalidation_error";
    case CloseReason::CreditOverrun:
      return "credit_overrun";
    case CloseReason::NoAnswer:
      return "no_answer";
    case CloseReason::SequenceTimeout:
      return "sequence_timeout";
    case CloseReason::NotAuthenticated:
      return "not_authenticated";
    case CloseReason::NoCommonVersion:
      return "no_common_version";
    case CloseReason::InternalError:
      return "internal_error";
    case CloseReason::NoProgress:
      return "no_progress";
    case CloseReason::Unanswerable:
      return "unanswerable";
    case CloseReason::Silent:
      return "silent";
  }
  return "unknown";
}

double seconds_since(std::uint64_t wall_ns) {
  const std::uint64_t now_ns = segment::wall_ns();
  return wall_ns != 0 && now_ns > wall_ns ? static_cast<double>(now_ns - wall_ns) * 1e-9 : 0;
}

}  // namespace

void ConnectionReports::up(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) {
  journal_.add(events::ConnectionUp{
      .reactor = reactor, .connection = number, .peer = to_string(seen.peer), .outgoing = seen.outgoing});
}

void ConnectionReports::gone(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen,
                             std::uint64_t now_ns) {
  const Key key{reactor, seen.incarnation};
  const auto at = waiting_.find(key);
  if (at == waiting_.end() && waiting_.size() < kMaxWaiting) {
    waiting_[key] = {.number = number, .seen = seen, .since_ns = now_ns};
    return;
  }
  report(reactor, {.number = number, .seen = seen, .why = at != waiting_.end() ? at->second.why : nullptr});
  if (at != waiting_.end()) waiting_.erase(at);
}

void ConnectionReports::reason(std::uint32_t reactor, std::uint32_t incarnation, std::uint32_t reason,
                               std::uint64_t now_ns) {
  if (incarnation == 0) return;
  const char* const why = name_of(reason);
  const Key key{reactor, incarnation};
  const auto at = waiting_.find(key);
  if (at == waiting_.end()) {
    if (waiting_.size() < kMaxWaiting) waiting_[key] = {.why = why, .since_ns = now_ns};
    return;
  }
  at->second.why = why;
  if (at->second.seen.incarnation == 0) return;
  report(reactor, at->second);
  waiting_.erase(at);
}

void ConnectionReports::turn(std::uint64_t now_ns) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (now_ns - at->second.since_ns < kReasonWaitNs) {
      ++at;
      continue;
    }
    // A reason whose connection was never seen says nothing.
    if (at->second.seen.incarnation != 0) report(at->first.first, at->second);
    at = waiting_.erase(at);
  }
}

void ConnectionReports::report(std::uint32_t reactor, const Half& half) {
  journal_.add(events::ConnectionDown{.reactor = reactor,
                                      .connection = half.number,
                                      .peer = to_string(half.seen.peer),
                                      .outgoing = half.seen.outgoing,
                                      .reason = half.why != nullptr ? half.why : "unknown",
                                      .was_up = half.seen.was_up,
                                      .age_s = seconds_since(half.seen.since_ns)});
}

}  // namespace sluice::cm
