// SPDX-License-Identifier: Apache-2.0
//
// Reconciles the connection count of admission control with the connections in the reactors' tables and with
// admitted connections that are not in a table yet. Each connection is counted once, even if its events are
// reordered, duplicated or lost. Single-threaded.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "controlplane/cm/connection_monitor.h"
#include "controlplane/policy/admission.h"

namespace sluice::cm {

class AdmissionTable {
 public:
  /// `admission` outlives this object.
  explicit AdmissionTable(policy::Admission& admission) : admission_(admission) {}

  /// Records a request that admission control has counted. It holds a slot until the connection appears or
  /// fails.
  void admitted(std::uint32_t reactor, std::uint32_t cm_id, const PeerAddress& peer) {
    if (!held_.emplace(key(reactor, cm_id), peer).second) admission_.disconnected(peer);
  }
  /// Releases the slot of a connection that failed. Returns its peer if it held a slot.
  std::optional<PeerAddress> failed(std::uint32_t reactor, std::uint32_t cm_id) {
    const auto at = held_.find(key(reactor, cm_id));
    if (at == held_.end()) return std::nullopt;
    const PeerAddress peer = at->second;
    admission_.disconnected(peer);
    held_.erase(at);
    return peer;
  }
  void appeared(std::uint32_t reactor, const SeenConnection& seen) {
    if (seen.outgoing) return;
    failed(reactor, seen.cm_id);
    admission_.connected(seen.peer);
  }
  void gone(const SeenConnection& seen) {
    if (!seen.outgoing) admission_.disconnected(seen.peer);
  }
  /// Releases all held slots. Called when another data plane has started, because it does not have the
  /// requests of its predecessor.
  void forget_held() {
    for (const auto& [id, peer] : held_) admission_.disconnected(peer);
    held_.clear();
  }
  std::size_t held() const { return held_.size(); }

 private:
  static std::uint64_t key(std::uint32_t reactor, std::uint32_t cm_id) {
    return std::uint64_t{reactor} << 32 | cm_id;
  }

  policy::Admission& admission_;
  std::unordered_map<std::uint64_t, PeerAddress> held_;
};

}  // namespace sluice::cm
