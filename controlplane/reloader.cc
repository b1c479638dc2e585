// SPDX-License-Identifier: Apache-2.0
#include "controlplane/reloader.h"

#include <utility>

namespace sluice::controlplane {

Reloader::Reloader(tasks::Arena& arena, Begin begin) : arena_(arena), begin_(std::move(begin)) {}

void Reloader::request(admin::Reloaded done) {
  next_.push_back(std::move(done));
  if (reading_.empty()) start();
}

void Reloader::start() {
  reading_ = std::exchange(next_, {});
  const bool started =
      arena_.start([this, read = begin_()] { return [this, apply = read()] { finish(apply()); }; });
  if (!started)
    finish(
        {.changes = {}, .problem = "The control plane has too much to do at the moment: try again later.\n"});
}

void Reloader::finish(const admin::ReloadResult& result) {
  for (const admin::Reloaded& done : std::exchange(reading_, {})) done(result);
  if (!next_.empty() && reading_.empty()) start();
}

}  // namespace sluice::controlplane
