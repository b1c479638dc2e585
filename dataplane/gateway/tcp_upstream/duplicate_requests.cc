// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/duplicate_requests.h"

#include <utility>

#include "dataplane/base/invariant.h"

namespace sluice::tcp_upstream {
namespace {

using Counter = segment::UpstreamCounter;
using Seen = DuplicateRequestCache::Seen;

RequestKey key_of(const ForwardedCall& forwarded, std::uint32_t upstream,
                  const DuplicateRequestCache& cache) noexcept {
  const rpc::CallHeader& header = forwarded.call->header();
  return {.client = forwarded.call->peer(),
          .xid = static_cast<std::uint32_t>(header.xid),
          .program = header.program,
          .version = header.version,
          .procedure = header.procedure,
          .upstream = upstream,
          .bytes = static_cast<std::uint32_t>(forwarded.message.size()),
          .checksum = cache.checksum(forwarded.message)};
}

/// Returns whether the reply is a success. Error replies are not cached, because the retransmission may
/// succeed.
bool is_success(std::span<const std::byte> record) noexcept {
  xdr::Reader reader(record);
  const rpc::ReplyDecodeResult reply = rpc::decode_reply(reader);
  return reply.ok && reply.header.success();
}

}  // namespace

DuplicateRequests::DuplicateRequests(UpstreamShared& shared)
    : shared_(shared),
      cache_(shared.config.cache),
      hosts_(shared.config.max_clients),
      orphans_(shared.config.numbers()) {}

/// Finds or adds the entry of a call that must not be executed twice.
DuplicateRequests::Decision DuplicateRequests::look_up(ForwardedCall& forwarded) noexcept {
  const DuplicateRequestCache::Found found =
      cache_->look_up(key_of(forwarded, shared_.identity, *cache_), *forwarded.host, shared_.now_ns());
  forwarded.entry = found.entry;
  switch (found.seen) {
    case Seen::New:
      if (found.evicted) shared_.count(Counter::evicted_replies);
      if (forwarded.repetition == service::Repetition::OnlyOnce)
        static_cast<void>(cache_->keep_call(*found.entry, forwarded.message));
      return Decision::Now;
    case Seen::Answered:
      shared_.count(Counter::replayed);
      return Decision::Replay;
    case Seen::Outstanding:
    case Seen::Full:
      break;
  }
  return Decision::Later;
}

void DuplicateRequests::keep_reply(ForwardedCall& forwarded, std::span<const std::byte> record) noexcept {
  if (!is_success(record)) return;
  if (record.size() > kKeptBytes) return shared_.count(Counter::unkept_replies);
  cache_->answer(*std::exchange(forwarded.entry, nullptr), record, shared_.now_ns());
}

void DuplicateRequests::release_entry(ForwardedCall& forwarded) noexcept {
  DuplicateRequestCache::Entry& entry = *std::exchange(forwarded.entry, nullptr);
  if (forwarded.state == ForwardedCall::State::AwaitingReplay)
    cache_->release(entry);
  else
    cache_->drop(entry);
}

void DuplicateRequests::no_longer_earlier(ForwardedCall& forwarded) noexcept {
  if (!std::exchange(forwarded.earlier, false)) return;
  // Pairs with decide(): the entry of the call has its reply or is free.
  const std::uint32_t before = forwarded.host->earlier.fetch_sub(1, std::memory_order_release);
  static_cast<void>(SLUICE_INVARIANT(before > 0, pool_balance));
  cache_->release(*forwarded.host);
}

void DuplicateRequests::note_earlier(ForwardedCall& forwarded) noexcept {
  if (forwarded.host == nullptr || forwarded.repetition == service::Repetition::Harmless ||
      std::exchange(forwarded.earlier, true))
    return;
  forwarded.host->users.fetch_add(1, std::memory_order_relaxed);  // relaxed: the connection is a user already
  forwarded.host->earlier.fetch_add(1, std::memory_order_relaxed);
}

ForwardedCall* DuplicateRequests::adopt(ForwardedCall& forwarded) noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(forwarded.call != nullptr && forwarded.connection != nullptr, gateway_state));
  if (orphans_.full()) {
    shared_.count(Counter::lost_orphans);
    return nullptr;
  }
  note_earlier(forwarded);
  ForwardedCall& orphan = orphans_.take();
  orphan = forwarded;
  orphan.call = nullptr;
  orphan.memory = nullptr;
  orphan.need = ReplyNeed::None;
  orphan.message = {};
  if (orphan.entry != nullptr && orphan.repetition == service::Repetition::OnlyOnce)
    orphan.message = cache_->call_of(*orphan.entry);
  forwarded.entry = nullptr;
  forwarded.earlier = false;
  return &orphan;
}

void DuplicateRequests::let_go(DuplicateRequestCache::Entry* replayed) noexcept {
  if (!SLUICE_INVARIANT(replayed != nullptr, pool_balance)) return;
  cache_->release(*replayed);
}

void DuplicateRequests::client_gone(std::uint16_t client) noexcept {
  if (!SLUICE_INVARIANT(client < hosts_.size(), table_index)) return;
  if (RequestHost* const host = std::exchange(hosts_[client], nullptr)) cache_->release(*host);
}

}  // namespace sluice::tcp_upstream
