// SPDX-License-Identifier: Apache-2.0
#include "controlplane/start_watch.h"

namespace sluice::controlplane {

StartWatch::Step StartWatch::look(std::uint64_t now_ns) {
  asked_ = layout_.start_asked.load(std::memory_order_acquire);
  if (asked_ == layout_.start_answered.load(std::memory_order_relaxed)) return Step::Nothing;
  if (!changed_ || files_ == Files::Unusable) return Step::Answer;
  if (files_ == Files::Usable) return Step::BeginAnew;
  if (files_ == Files::Reading) return now_ns - reading_since_ns_ > kReadNs ? Step::Answer : Step::Nothing;
  files_ = Files::Reading;
  reading_since_ns_ = now_ns;
  return Step::Read;
}

void StartWatch::has_read(bool usable) {
  if (files_ == Files::Reading) files_ = usable ? Files::Usable : Files::Unusable;
}

void StartWatch::answered() {
  files_ = Files::NotRead;
  if (asked_ != layout_.start_answered.load(std::memory_order_relaxed)) ++starts_answered_;
  layout_.start_answered.store(asked_, std::memory_order_release);
}

bool data_plane_has_started(const segment::Segment& segment, const segment::Layout& layout) {
  return segment.data_plane_runs() && layout.start_asked.load(std::memory_order_acquire) ==
                                          layout.start_answered.load(std::memory_order_relaxed);
}

}  // namespace sluice::controlplane
