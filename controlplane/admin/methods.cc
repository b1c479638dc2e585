// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/methods.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/json_rpc.h"
#include "controlplane/admin/registry.h"
#include "controlplane/admin/views/connections.h"
#include "controlplane/admin/views/reactors.h"
#include "controlplane/admin/views/status.h"
#include "controlplane/admin/views/upstreams.h"
#include "controlplane/config/config.h"
#include "controlplane/config/keys.h"
#include "controlplane/events/sinks.h"
#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/channels.h"
#include "dataplane/segment/checked.h"

namespace sluice::admin {
namespace {

ConnectionFilter filter_of(const config::Config& config, const Json& parameters) {
  return connection_filter(config, parameters.at("peer").get<std::string>(),
                           parameters.at("class").get<std::string>());
}

Json describe(Page page, const char* rows) {
  return {{rows, std::move(page.rows)}, {"next", page.next ? Json(*page.next) : Json(nullptr)}};
}

/// Returns the page that starts at position `from`.
using PageMaker = Function<Page(std::uint64_t from, Pace& pace)>;

/// Answers with the rows of all pages, which takes several iterations. If there are more than
/// kMaxListedAtOnce rows, answers with an error that names `method`, the method that returns pages.
void list_all(PacedWork& work, const Answer& answer, const char* method, PageMaker make) {
  struct Listing {
    std::string text;
    std::uint64_t from = 0;
    std::size_t rows = 0;
  };
  const auto listing = std::make_shared<Listing>();
  const bool added = work.add(answer, [listing, answer, method, make = std::move(make)](Pace& pace) {
    const Page page = make(listing->from, pace);
    for (const Json& row : page.rows) listing->text += (listing->text.empty() ? "[" : ",") + to_line(row);
    listing->rows += page.rows.size();
    const bool too_many = listing->rows > kMaxListedAtOnce;
    if (too_many)
      answer.problem("There are more than " + std::to_string(kMaxListedAtOnce) +
                     " connections to list. Read them in pages, with '" + method + "'.");
    else if (!page.next)
      answer.result_text(listing->text.empty() ? "[]" : listing->text + "]");
    listing->from = page.next.value_or(0);
    return too_many || !page.next;
  });
  if (!added) answer.problem(kTooManyJobs);
}

void add_listings(Registry& registry, const segment::Layout& layout, const config::Config& config,
                  const ViewLimits& limits) {
  Pace& pace = limits.pace;
  PacedWork& work = limits.work;
  registry.add(declared("connections_read"), [&](const Json& parameters) {
    return describe(
        connections(layout, config, filter_of(config, parameters), parameters.at("from").get<std::uint64_t>(),
                    number_of(parameters, "count"), pace),
        "connections");
  });
  registry.add(declared("properties_read"), [&](const Json& parameters) {
    return describe(connection_properties(layout, config.block, parameters.at("from").get<std::uint64_t>(),
                                          number_of(parameters, "count"), pace),
                    "properties");
  });
  registry.add_later(declared("connections"), [&](const Json& parameters, const Answer& answer) {
    list_all(work, answer, "connections_read",
             [&, filter = filter_of(config, parameters)](std::uint64_t from, Pace& allowed) {
               return connections(layout, config, filter, from, kMaxPageRows, allowed);
             });
  });
  registry.add_later(declared("properties"), [&](const Json&, const Answer& answer) {
    list_all(work, answer, "properties_read", [&](std::uint64_t from, Pace& allowed) {
      return connection_properties(layout, config.block, from, kMaxPageRows, allowed);
    });
  });
}

}  // namespace

void add_segment_views(Registry& registry, const segment::Layout& layout, const config::Config& config,
                       const ViewLimits& limits) {
  const auto read = [&registry](const std::string& name, Method method) {
    registry.add(declared(name), std::move(method));
  };
  add_listings(registry, layout, config, limits);
  read("connection_show", [&](const Json& parameters) {
    const std::uint32_t reactor = number_of(parameters, "reactor");
    return show_connection(layout, config, reactor, number_of(parameters, "connection"));
  });
  read("exports", [&](const Json&) { return exports(layout); });
  read("export_stats", [&](const Json& parameters) {
    return export_statistics(layout, parameters.at("path").get<std::string>());
  });
  read("upstreams", [&](const Json&) { return upstreams(layout, config.block); });
  read("upstream_counters", [&](const Json&) { return upstream_counters(layout, config.block); });
  read("reverse", [&](const Json&) { return reverse(layout, config.block); });
  read("reverse_counters", [&](const Json&) { return reverse_counters(layout, config.block); });
  read("reactors", [&](const Json&) { return reactors(layout, config.block); });
  read("procedures", [&](const Json&) { return procedures(layout, config.block); });
  read("counters", [&](const Json&) { return counters(layout, config.block); });
  read("memory", [&](const Json&) { return memory(layout, config.block); });
  read("devices", [&](const Json&) { return devices(layout, config.block); });
  read("config_show", [&](const Json&) { return config::describe(config); });
}

namespace {

constexpr const char* kStates[] = {"none", "running", "done", "failed"};

Json start_capture(const segment::Layout& layout, const std::string& socket, const Json& parameters,
                   const FileDescriptor& pipe) {
  if (!pipe)
    throw MethodError(
        "capture_start requires the writing end of a pipe, passed with the request (SCM_RIGHTS).");
  const auto status = segment::checked(layout.capture_status);
  if (status && status->state == segment::CaptureState::Running &&
      segment::alive(layout.data_plane, segment::monotonic_ns()))
    throw MethodError("A capture runs already. 'sluicectl capture --stop' ends it.");
  segment::CaptureRequest request;
  request.id = segment::monotonic_ns();  // Unique, also across restarts of this process.
  request.seconds = parameters.at("seconds").get<std::uint32_t>();
  request.snap_bytes = parameters.at("snap").get<std::uint32_t>();
  request.max_packets = parameters.at("packets").get<std::uint64_t>();
  request.max_bytes = parameters.at("bytes").get<std::uint64_t>();
  request.queue_pair = parameters.at("queue_pair").get<std::uint32_t>();
  if (const auto peer = parameters.at("peer").get<std::string>(); !peer.empty()) {
    request.peer = peer_argument(peer);
    request.peer.zone = 0;  // the device whose packets are captured has one link
  }
  segment::send_capture_request(socket, request, pipe.get());
  return {{"id", request.id}};
}

Json stop_capture(const std::string& socket, const Json& parameters) {
  segment::CaptureRequest request;
  request.action = segment::CaptureAction::Stop;
  request.id = parameters.at("id").get<std::uint64_t>();
  segment::send_capture_request(socket, request, -1);
  return {{"id", request.id}};
}

Json capture_status(const segment::Layout& layout) {
  const auto status = segment::checked(layout.capture_status);
  if (!status) return {{"state", "none"}};
  Json result = {{"id", status->id},
                 {"state", kStates[static_cast<std::size_t>(status->state)]},
                 {"packets", status->packets},
                 {"bytes", status->bytes},
                 {"dropped", status->dropped}};
  if (status->state == segment::CaptureState::Done) result["end"] = status->end;
  if (status->state == segment::CaptureState::Failed) result["problem"] = status->problem;
  return result;
}

}  // namespace

void add_capture(Registry& registry, const segment::Layout& layout, const std::string& socket) {
  registry.add_with_descriptor(declared("capture_start"),
                               [&layout, socket](const Json& parameters, const FileDescriptor& pipe) {
                                 return start_capture(layout, socket, parameters, pipe);
                               });
  registry.add(declared("capture_stop"),
               [socket](const Json& parameters) { return stop_capture(socket, parameters); });
  registry.add(declared("capture_status"), [&layout](const Json&) { return capture_status(layout); });
}

namespace {

constexpr double kMicrosecondsPerNs = 1e-3;

Json describe(const segment::CallTable& table, std::uint32_t reactor, const segment::SlowCall& slow,
              const config::Config& config) {
  Json call = describe_call(table, slow.call);
  call["time"] = events::time_of(slow.ended_ns);
  call["reactor"] = reactor;
  call["connection"] = slow.call.connection;
  call["peer"] = to_string(slow.peer);
  call["class"] = config.classes[slow.client_class < config.classes.size() ? slow.client_class : 0].name;
  if (slow.replied == 0) call["status"] = "connection_lost";
  if (slow.upstream_ns != 0) call["upstream_us"] = static_cast<double>(slow.upstream_ns) * kMicrosecondsPerNs;
  return call;
}

/// Slow calls with the times at which they ended, in ns of the reactors' wall clocks.
using Found = std::vector<std::pair<std::uint64_t, Json>>;

struct Reader {
  const segment::Layout& layout;
  const config::Config& config;
  Found found{};
  std::uint64_t missed = 0;

  /// Reads the slow calls of a reactor, beginning with number `from`. Returns the number at which the next
  /// read begins. Any `from` is valid; a number that the ring has not reached yet belongs to the segment of
  /// another data plane, so reading starts over.
  std::uint64_t read(std::uint32_t reactor, std::uint64_t from) {
    const segment::SlowCallRing& ring = layout.slow_calls[reactor];
    const std::uint64_t end = ring.written.load(std::memory_order_acquire);  // pairs with add(): the records
    const std::uint64_t oldest = end > ring.kRecords ? end - ring.kRecords : 0;
    if (from > end) from = 0;
    if (from != 0 && from < oldest) missed += oldest - from;
    const std::uint64_t first = std::max(from, oldest);
    const std::uint64_t last = std::min(end, first + kSlowCallsPerAnswer);
    for (std::uint64_t at = first; at < last; ++at) {
      const auto slow = ring.records[at % ring.kRecords].read();
      if (slow && slow->number == at)
        found.emplace_back(slow->ended_ns, describe(layout.reactors[reactor].calls, reactor, *slow, config));
      else
        ++missed;  // The record was overwritten during the read.
    }
    return last;
  }
};

Json read_slow_calls(const segment::Layout& layout, const config::Config& config, const Json& parameters) {
  const auto from = parameters.at("from").get<std::vector<std::uint64_t>>();
  Reader reader{layout, config};
  Json next = Json::array();
  for (std::uint32_t i = 0; i < config.block.reactors; ++i)
    next.push_back(reader.read(i, i < from.size() ? from[i] : 0));
  std::stable_sort(reader.found.begin(), reader.found.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  Json calls = Json::array();
  for (auto& [ended_ns, call] : reader.found) calls.push_back(std::move(call));
  return {{"next", next}, {"missed", reader.missed}, {"calls", calls}};
}

}  // namespace

void add_slow_calls(Registry& registry, const segment::Layout& layout, const config::Config& config) {
  registry.add(declared("slow_calls"),
               [&](const Json& parameters) { return read_slow_calls(layout, config, parameters); });
}

namespace {

/// Returns the records of one connection, beginning with number "from", that are still in the ring. "next" is
/// the number at which the next read begins.
Json read_trace(const segment::Layout& layout, const config::Config& config, const Json& parameters) {
  const std::uint32_t reactor = number_of(parameters, "reactor");
  const std::uint32_t connection = number_of(parameters, "connection");
  if (reactor >= config.block.reactors)
    throw MethodError("There is no reactor " + std::to_string(reactor) + ".");
  const segment::TraceRing& ring = layout.reactors[reactor].trace;
  const std::uint64_t end = ring.written.load(std::memory_order_acquire);  // pairs with add(): the records
  std::uint64_t at = std::min(parameters.at("from").get<std::uint64_t>(), end);
  at = std::max(at, end > ring.records.size() ? end - ring.records.size() : 0);
  Json calls = Json::array();
  for (; at < end; ++at) {
    const auto record = ring.records[at % ring.records.size()].read();
    if (record && record->connection == connection)
      calls.push_back(describe_call(layout.reactors[reactor].calls, *record));
  }
  return {{"next", end}, {"calls", calls}};
}

/// Starts or stops the trace of a connection's calls. Returns the reactor's number.
std::uint32_t switch_trace(Operations& operations, const Json& parameters, bool on) {
  const std::uint32_t reactor = number_of(parameters, "reactor");
  const std::uint32_t connection = number_of(parameters, "connection");
  if (!operations.trace_connection(reactor, connection, on)) throw no_such_connection(reactor, connection);
  return reactor;
}

}  // namespace

void add_trace(Registry& registry, Operations& operations, const segment::Layout& layout,
               const config::Config& config) {
  registry.add(declared("trace_start"), [&](const Json& parameters) -> Json {
    const std::uint32_t reactor = switch_trace(operations, parameters, true);
    return {{"next", layout.reactors[reactor].trace.written.load()}};
  });
  registry.add(declared("trace_stop"), [&](const Json& parameters) {
    switch_trace(operations, parameters, false);
    return Json::object();
  });
  registry.add(declared("trace_read"),
               [&](const Json& parameters) { return read_trace(layout, config, parameters); });
}

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
