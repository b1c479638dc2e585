// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "controlplane/admin/declarations/common.h"
#include "controlplane/admin/declarations/declarations.h"
#include "dataplane/base/uring_features.h"

namespace sluice::admin {
namespace {

std::vector<std::string> uring_features() {
  return {kUringFeatureNames.begin(), kUringFeatureNames.end()};
}

Declaration upstreams() {
  return {
      .name = "upstreams",
      .needed = Access::Read,
      .summary = "The upstream servers of the gateway, all reactors together.",
      .result = rows(
          "", "",
          {text("name", "its name"),
           rows("addresses", "its addresses, in order of preference; empty: no name of it has been resolved",
                {text("address", "the address"), flag("in_use", "whether a reactor uses it"),
                 text("answers", "whether it has answered of late").one_of({"yes", "no", "unknown"})}),
           whole("port", "its port"), whole("listen_port", "the port at which clients reach it"),
           text("state", "slow: it takes fewer calls than it is sent")
               .one_of({"up", "slow", "unreachable", "idle", "removed"}),
           whole("connections", "connections"), whole("connecting", "connections being made"),
           whole("outstanding", "calls that it has not answered"),
           whole("waiting", "calls that are not sent yet"),
           whole("credit_limit", "the most calls at a time of a reactor, the lowest of any; 0: no limit"),
           list("io_uring", "features of io_uring that every reactor uses for it",
                text("", "a feature").one_of(uring_features())),
           whole("calls", "calls forwarded"), whole("replies", "replies"),
           whole("resent", "calls sent again"), whole("timeouts", "calls that it has not answered in time"),
           number("upstream_p50_us", "the median of its latency, in microseconds"),
           number("upstream_p99_us", "the 99th percentile of its latency, in microseconds"),
           object("mean_us", "the mean latency by where it is spent, in microseconds",
                  {number("upstream", "from sending a call to the last byte of its reply"),
                   number("gateway", "from a call's arrival to sending it on"),
                   number("rdma",
                          "the rest, of all upstreams together that have programs in common with it")})})};
}

Declaration upstream_counters() {
  return {
      .name = "upstream_counters",
      .needed = Access::Read,
      .summary = "All counters of each upstream.",
      .result = rows("", "",
                     joined({text("name", "the upstream's name")}, counters_of(segment::kUpstreamCounters)))};
}

Field reverse_counter(const char* name) {
  for (const auto& info : segment::kIngressCounters)
    if (info.name == name) return whole(name, std::string(info.help));
  throw std::logic_error(std::string("There is no counter ") + name + ".");
}

Declaration reverse() {
  Fields fields = {whole("listen_port", "the TCP port of its clients"),
                   text("server", "the RDMA server's address"),
                   whole("server_port", "the RDMA server's port"),
                   text("state", "of the server").one_of({"up", "unreachable", "idle"}),
                   whole("clients", "TCP clients"),
                   whole("connected", "of those, with a connection to the server"),
                   whole("outstanding", "calls that the server has not answered"),
                   number("server_p50_us", "the median of the server's latency, in microseconds"),
                   number("server_p99_us", "the 99th percentile of it, in microseconds")};
  for (const char* name : {"calls", "replies", "failures", "timeouts", "calls_lost", "server_resets"})
    fields.push_back(reverse_counter(name));
  return {.name = "reverse",
          .needed = Access::Read,
          .summary = "The reverse gateway, all reactors together; empty where there is none.",
          .result = object("", "", fields).or_empty()};
}

Declaration reverse_counters() {
  return {.name = "reverse_counters",
          .needed = Access::Read,
          .summary = "All counters of the reverse gateway.",
          .result = object("", "", counters_of(segment::kIngressCounters))};
}

}  // namespace

Chapter declare_gateways() {
  return {.title = "Gateways", .methods = {upstreams(), upstream_counters(), reverse(), reverse_counters()}};
}

}  // namespace sluice::admin
