// SPDX-License-Identifier: Apache-2.0
//
// Keeps admission's count of connections: those in the tables of the reactors, and those that were admitted and are not
// there yet. Each is counted once, whichever of its events come, twice, late or not at all. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "controlplane/cm/connection_watch.h"
#include "controlplane/policy/admission.h"

namespace sluice::cm {

class AdmissionBook {
 public:
  /// `admission` outlives it.
  explicit AdmissionBook(policy::Admission& admission) : admission_(admission) {}

  /// Admission has counted a request: it holds a place until the connection appears or fails.
  void admitted(std::uint32_t reactor, std::uint32_t cm_id, const PeerAddress& peer) {
    if (!held_.emplace(key(reactor, cm_id), peer).second) admission_.disconnected(peer);
  }
  /// The connection will not come. Returns its peer if it held a place.
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
  /// Another data plane runs: it knows nothing of what its predecessor was asked for.
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
