// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/version_choice.h"

#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma {

namespace {

ServerAddress server_of(const Link& link) noexcept {
  return {link.peer(), link.config().server_port};
}

}  // namespace

void VersionChoice::open() noexcept {
  const ConnectionConfig& config = link_.config();
  LinkContext& context = link_.context();
  const bool version_2 =
      config.max_version >= v2::kVersion &&
      !(config.active && context.version_memory.version_1_only(server_of(link_), context.now_ns()));
  VersionState version = VersionState::Version1;
  Opening opening = Opening::Complete;
  if (version_2) version = config.active ? VersionState::AwaitingAnswer : VersionState::AwaitingFirstMessage;
  if (version == VersionState::AwaitingAnswer)
    opening =
        config.version2.greeting == Greeting::Call ? Opening::AwaitingCall : Opening::AwaitingProperties;
  asked_ns_ = 0;
  delivered_ = false;
  link_.begin(version, opening);
}

void VersionChoice::on_drained() noexcept {
  if (delivered_ && link_.negotiating() && link_.close_reason() != CloseReason::LocalClose)
    remember_version_1();
}

void VersionChoice::remember_version_1() noexcept {
  LinkContext& context = link_.context();
  context.version_memory.add(server_of(link_),
                             context.now_ns() + link_.config().version2.version_1_memory_ns);
}

void VersionChoice::tick() noexcept {
  if (!link_.negotiating()) return;
  const std::uint64_t now_ns = link_.context().now_ns();
  // Connections are made outside of turns, where the clock may stand still: its first tick starts the timer.
  if (link_.opening() == Opening::Complete && asked_ns_ == 0) asked_ns_ = now_ns;
  if (asked_ns_ > 0 && now_ns > asked_ns_ && now_ns - asked_ns_ > link_.config().version2.first_answer_ns)
    link_.close(CloseReason::NoAnswer);
}

/// A server's version is that of the first supported message (V2-016); a client knows its own from the start.
bool VersionChoice::is_version_2(std::uint16_t buffer, std::uint32_t bytes) noexcept {
  if (link_.speaks_version_2()) return true;
  if (bytes < kFixedBytes) return false;
  const FixedHeader fixed = load_fixed(link_.receive_buffer(buffer).data());
  if (fixed.version == v2::kVersion) return true;
  // Neither of ours, perhaps: ERR_VERS uses a credit as every message does (D2-16).
  if (fixed.version != v1::kVersion) static_cast<void>(link_.flow().on_receive());
  return false;
}

void VersionChoice::settle(VersionState version) noexcept {
  const bool by_first_message = link_.version_state() == VersionState::AwaitingFirstMessage;
  link_.transition(version);
  if (!by_first_message) return;
  if (version == VersionState::Version2 && link_.config().version2.announce)
    link_.transition(Opening::AwaitingProperties);
  link_.retry_at_turn_end();  // reverse calls waited for the version
}

void VersionChoice::fall_back(rpc::VersionRange supported) noexcept {
  remember_version_1();
  if (supported.low > v1::kVersion || supported.high < v1::kVersion) {
    settle(VersionState::Version2);  // nothing is left to negotiate
    return link_.close(CloseReason::NoCommonVersion);
  }
  ++link_.counters().fallbacks;
  settle(VersionState::Version1);
  if (link_.opening() != Opening::Complete) link_.transition(Opening::Complete);
  roles_.responder().set_holding(false);
  link_.repost_spares();
  if (roles_.requester() != nullptr) roles_.requester()->on_fallback();
}

}  // namespace sluice::rpcrdma
