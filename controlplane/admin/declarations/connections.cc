// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/declarations/common.h"
#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/pace.h"
#include "controlplane/clients/busiest.h"

namespace sluice::admin {
namespace {

constexpr const char* kTooManyRows =
    "There are more than 16,384 rows: the method that returns pages has them.";
static_assert(kMaxListedAtOnce == 16'384);

Fields connection_fields() {
  return {reactor_number(),
          connection_number(),
          text("state", "its state").one_of({"unused", "opening", "open", "closing"}),
          text("peer", "the client's address"),
          flag("outgoing", "whether it was made from here, to a server"),
          text("class", "the class of clients that it is in"),
          whole("version", "of RPC-over-RDMA; 0: not known before the first message"),
          whole("credits", "credits granted"),
          whole("busy", "calls in progress"),
          whole("calls", "calls received"),
          whole("receive_inline_bytes", "the longest message that is received inline"),
          whole("send_inline_bytes", "the longest message that is sent inline"),
          age_s("since it was made"),
          whole("window", "version 2: Receives granted to the client").if_any(),
          whole("client_window", "version 2: Receives that the client has granted").if_any(),
          flag("held", "version 2: whether its calls wait until the host has authenticated itself").if_any(),
          text("host", "version 2: the host that has authenticated itself").if_any()};
}

Field side(std::string name, std::string meaning) {
  return object(
      std::move(name), std::move(meaning),
      {whole("max_send_bytes", "the longest message that it sends"),
       whole("receive_buffer_bytes", "the longest message that it receives"),
       whole("max_segment_bytes", "the longest segment of a chunk that it takes"),
       whole("max_segments", "the most segments of a chunk that it takes"),
       text("reverse_support", "calls in the other direction").one_of({"none", "inline", "general"})});
}

Fields both_sides() {
  return {side("ours", "what Sluice has said of itself"),
          side("client", "what the client has said of itself; null: nothing").or_null()};
}

std::vector<std::string> slot_states() {
  return words(segment::kSlotStates + 1, segment::kSlotStateCount - 1);
}

Declaration connections() {
  return {.name = "connections",
          .needed = Access::Read,
          .summary =
              "The connections that there are, all at once: for sites with few. connections_read has them "
              "in pages.",
          .parameters = {text("peer", "only those of this address; empty: all").or_else(""),
                         text("class", "only those of this class of clients; empty: all").or_else("")},
          .result = rows("", "", connection_fields()),
          .errors = {kTooManyRows, kTooMuchToDo}};
}

Field position_parameter() {
  return whole("from", "where the page begins: 0, or next of the page before").or_else(std::uint64_t{0});
}
Field count_parameter(std::uint32_t most, const char* meaning) {
  return whole32("count", meaning).at_most(most).or_else(most);
}
Field next_position() {
  return whole("next", "where the next page begins; null: this was the last one").or_null();
}

Declaration connections_read() {
  return {.name = "connections_read",
          .needed = Access::Read,
          .summary =
              "The connections that there are, in pages. A page may have fewer rows than asked for, or "
              "none, and still not be the last one. A connection that is open all the time is listed once.",
          .parameters = {position_parameter(), count_parameter(kMaxPageRows, "the most rows of the page"),
                         text("peer", "only those of this address; empty: all").or_else(""),
                         text("class", "only those of this class of clients; empty: all").or_else("")},
          .result = object("", "", {rows("connections", "the page", connection_fields()), next_position()})};
}

Declaration busiest() {
  return {
      .name = "busiest",
      .needed = Access::Read,
      .summary =
          "The connections and clients that had the most calls in the last second, and sums over "
          "all connections of clients.",
      .parameters = {whole32("count", "the most connections, and the most clients")
                         .at_most(clients::kBusiestKept)
                         .or_else(clients::kBusiestKept)},
      .result = object(
          "", "",
          {number("interval_s", "the time in which calls were counted, in seconds; 0: not counted yet"),
           whole("open", "open connections of clients"), whole("credits", "credits granted to them"),
           whole("busy", "their calls in progress"), number("calls_per_s", "their calls answered per second"),
           rows("connections", "the busiest connections, the busiest first",
                {reactor_number(), connection_number(), text("peer", "the client's address"),
                 text("class", "the class of clients that it is in"), whole("credits", "credits granted"),
                 whole("busy", "calls in progress"), number("calls_per_s", "calls answered per second")}),
           rows("clients", "the busiest clients, the busiest first",
                {text("peer", "the client's address"), whole("connections", "its connections that had calls"),
                 whole("credits", "credits granted to these"), whole("busy", "calls in progress on these"),
                 number("calls_per_s", "calls answered per second")})})};
}

Declaration connection_show() {
  return {
      .name = "connection_show",
      .needed = Access::Read,
      .summary = "Everything about a connection.",
      .parameters = {reactor_number(), connection_number()},
      .result = object(
          "", "",
          joined(connection_fields(),
                 {whole("peak_busy", "the most calls in progress at a time, of late"),
                  whole("queue_pair", "its queue pair's number"),
                  whole("received_bytes", "of messages and of RDMA Reads of the gateway, since it is open"),
                  whole("sent_bytes", "of messages and of RDMA Writes of the gateway, since it is open"),
                  whole("held_bytes", "of buffers that connections share, those that it holds"),
                  object("oldest_call", "the oldest call in progress; null: there is none",
                         {age_s("since it came"), text("state", "what it waits for").one_of(slot_states())})
                      .or_null(),
                  flag("draining", "whether it ends when it has no call"),
                  flag("traced", "whether its calls are recorded"),
                  flag("ending", "whether it has been told to end"),
                  whole("credits_wanted", "the grant that the policy wants it to have; 0: none is set"),
                  map("counters_of_class",
                      "counters of errors and waits, of all connections of its class on its reactor: those "
                      "that are not zero",
                      whole("", "")),
                  whole("cm_id", "its number in connection management"),
                  whole("client_process", "loopback: the client's process").if_any(),
                  object("properties", "version 2: transport properties", both_sides()).if_any()})),
      .errors = {kNoSuchConnection}};
}

Declaration connection_close() {
  return {.name = "connection_close",
          .summary = "Ends a connection; its client may make another.",
          .parameters = {reactor_number(), connection_number()},
          .result = object("", "", {flag("closing", "always true")}),
          .errors = {kNoSuchConnection}};
}

Fields property_fields() {
  return joined(both_sides(), {reactor_number(), connection_number(), text("peer", "the client's address")});
}

Declaration properties() {
  return {.name = "properties",
          .needed = Access::Read,
          .summary =
              "Transport properties of the version 2 connections, all at once: for sites with few. "
              "properties_read has them in pages.",
          .result = rows("", "", property_fields()),
          .errors = {kTooManyRows, kTooMuchToDo}};
}

Declaration properties_read() {
  return {.name = "properties_read",
          .needed = Access::Read,
          .summary =
              "Transport properties of the version 2 connections, in pages. A page may have fewer rows "
              "than asked for, or none, and still not be the last one.",
          .parameters = {position_parameter(), count_parameter(kMaxPageRows, "the most rows of the page")},
          .result = object("", "", {rows("properties", "the page", property_fields()), next_position()})};
}

Fields credit_sums() {
  return {whole("connections", "open connections of clients"),
          whole("idle", "of those, without a call of late"), whole("granted", "credits granted to them"),
          whole("used", "calls in progress")};
}

Declaration credits() {
  return {.name = "credits",
          .needed = Access::Read,
          .summary = "The credit policy: call slots of each reactor, and grants by class of clients.",
          .result = object("", "",
                           {rows("reactors", "the reactors",
                                 joined({reactor_number(), whole("slots", "call slots")}, credit_sums())),
                            rows("classes", "the classes of clients",
                                 joined({text("class", "the class"), number("weight", "its weight"),
                                         whole("min_credits", "the least that a connection is granted"),
                                         whole("max_credits", "the most that a connection is granted")},
                                        credit_sums())),
                            whole("recomputations", "times that the policy was recomputed"),
                            number("last_recomputation_ms", "how long the last took, in milliseconds"),
                            whole("grants_changed", "grants that the policy has changed")}),
          .errors = {kTooMuchToDo}};
}

Field drain_result() {
  return object("", "",
                {flag("draining", "whether connections are drained"),
                 whole("connections", "connections that there still are"),
                 flag("saved", "whether the next start finds it so")});
}

Declaration drain(std::string name, std::string summary) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .parameters = {save_parameter()},
          .result = drain_result(),
          .errors = {"It cannot be saved; nothing has changed then."}};
}

}  // namespace

Chapter declare_connections() {
  return {
      .title = "Connections",
      .methods = {
          connections(),
          connections_read(),
          busiest(),
          connection_show(),
          connection_close(),
          properties(),
          properties_read(),
          credits(),
          drain("drain_start",
                "Refuses new connections, and ends each of the others when it has no call; answers at once."),
          drain("drain_stop", "Admits connections again."),
          {.name = "drain_status",
           .needed = Access::Read,
           .summary = "Whether connections are drained, and how many there still are.",
           .result = drain_result()}}};
}

}  // namespace sluice::admin
