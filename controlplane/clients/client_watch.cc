// SPDX-License-Identifier: Apache-2.0
#include "controlplane/clients/client_watch.h"

#include <algorithm>

#include "dataplane/segment/checked.h"

namespace sluice::clients {
namespace {

constexpr std::uint64_t kLookIntervalNs = 1'000'000'000;
constexpr std::uint32_t kLooksPerInterval = 10;

}  // namespace

ClientWatch::ClientWatch(segment::Layout& layout, std::uint32_t reactors, std::uint32_t connections)
    : layout_(layout),
      reactors_(std::min(reactors, segment::kMaxReactors)),
      connections_(std::min(connections, segment::kMaxConnections)),
      seen_(std::size_t{reactors_} * connections_) {
  for (std::uint32_t reactor = 0; reactor < reactors_; ++reactor)
    for (std::uint32_t number = 0; number < connections_; ++number) look(reactor, number, false);
}

/// Most connections have not changed: two words of each are read.
void ClientWatch::look(std::uint32_t reactor, std::uint32_t number, bool counts) {
  const segment::ConnectionUse& use = layout_.reactors[reactor].use[number];
  if (use.open.load(std::memory_order_relaxed) != segment::ConnectionUse::kOfClient) return;
  const segment::ServedCalls served{.calls = use.served.load(std::memory_order_relaxed),
                                    .time_ns = use.served_ns.load(std::memory_order_relaxed)};
  Seen& seen = seen_[reactor * connections_ + number];
  if (seen.incarnation != 0 && served.calls == seen.served.calls) return;
  const auto info = segment::checked(layout_.reactors[reactor].connections[number]);
  if (!info || info->incarnation == 0) return;
  const segment::ServedCalls before =
      info->incarnation == seen.incarnation && served.calls >= seen.served.calls ? seen.served
                                                                                 : segment::ServedCalls{};
  seen = {.incarnation = info->incarnation, .served = served};
  if (!counts || served.calls == before.calls) return;
  book_.add(info->peer, {.calls = served.calls - before.calls,
                         .time_ns = served.time_ns - std::min(before.time_ns, served.time_ns)});
}

void ClientWatch::poll(std::uint64_t now_ns) {
  if (now_ns - looked_ns_ < kLookIntervalNs) return;
  looked_ns_ = now_ns;
  for (std::uint32_t reactor = 0; reactor < reactors_; ++reactor)
    for (std::uint32_t number = 0; number < connections_; ++number) look(reactor, number, true);
  if (looks_++ % kLooksPerInterval == 0) book_.end_interval();
  layout_.clients.write(book_.table());
}

}  // namespace sluice::clients
