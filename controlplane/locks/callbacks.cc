// SPDX-License-Identifier: Apache-2.0
#include "controlplane/locks/callbacks.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice::locks {

bool Callbacks::call(const Destination& to, Bytes message, std::uint64_t now_ns, std::uint64_t deadline_ns,
                     Courier::Done done) {
  const Key key{to.address.bytes, to.from.value_or(PeerAddress{}).bytes, to.program};
  auto at = callees_.find(key);
  if (at == callees_.end()) {
    if (callees_.size() >= kMaxCallees) {
      const auto unused = std::find_if(callees_.begin(), callees_.end(),
                                       [](const auto& entry) { return entry.second->courier.idle(); });
      if (in_turn_ || unused == callees_.end()) return false;
      callees_.erase(unused);
    }
    at = callees_.emplace(key, std::make_unique<Callee>(to, statistics_)).first;
  }
  at->second->used_ns = now_ns;
  at->second->courier.send(std::move(message), now_ns, deadline_ns, std::move(done));
  return true;
}

void Callbacks::prepare(mount::PollSet& set) {
  for (const auto& [key, callee] : callees_) {
    callee->courier.prepare(set);
    if (callee->courier.idle()) set.wake_at(callee->used_ns + kIdleCalleeNs);
  }
}

void Callbacks::turn(const mount::PollSet& set, std::uint64_t now_ns) {
  // Whose reply has come may call others, which are not among these.
  std::vector<Callee*> all;
  for (const auto& [key, callee] : callees_) all.push_back(callee.get());
  in_turn_ = true;
  for (Callee* const callee : all) callee->courier.turn(set, now_ns);
  in_turn_ = false;
  std::erase_if(callees_, [&](const auto& entry) {
    return entry.second->courier.idle() && now_ns >= entry.second->used_ns + kIdleCalleeNs;
  });
}

}  // namespace sluice::locks
