// SPDX-License-Identifier: Apache-2.0
#include "controlplane/clients/client_watch.h"

#include <algorithm>

#include "dataplane/segment/checked.h"

namespace sluice::clients {
namespace {

constexpr std::uint64_t kLookIntervalNs = 1'000'000'000;
constexpr std::uint32_t kLooksPerInterval = 10;

segment::ServedCalls shown_by(const segment::ConnectionUse& use) {
  return {.calls = use.served.load(std::memory_order_relaxed),
          .time_ns = use.served_ns.load(std::memory_order_relaxed),
          .received_bytes = use.received_bytes.load(std::memory_order_relaxed),
          .sent_bytes = use.sent_bytes.load(std::memory_order_relaxed)};
}

/// Its parts are not written at once, so that any may be behind.
segment::ServedCalls since(const segment::ServedCalls& before, const segment::ServedCalls& now) {
  const auto more = [](std::uint64_t from, std::uint64_t to) { return to - std::min(from, to); };
  return {.calls = more(before.calls, now.calls),
          .time_ns = more(before.time_ns, now.time_ns),
          .received_bytes = more(before.received_bytes, now.received_bytes),
          .sent_bytes = more(before.sent_bytes, now.sent_bytes)};
}

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
  const segment::ServedCalls served = shown_by(use);
  Seen& seen = seen_[reactor * connections_ + number];
  if (seen.incarnation != 0 && served.calls == seen.served.calls) return;
  const auto info = segment::checked(layout_.reactors[reactor].connections[number]);
  if (!info || info->incarnation == 0) return;
  const segment::ServedCalls before =
      info->incarnation == seen.incarnation && served.calls >= seen.served.calls ? seen.served
                                                                                 : segment::ServedCalls{};
  seen = {.incarnation = info->incarnation, .served = served};
  if (!counts || served.calls == before.calls) return;
  book_.add(info->peer, since(before, served));
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
