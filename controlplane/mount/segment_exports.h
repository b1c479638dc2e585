// SPDX-License-Identifier: Apache-2.0
//
// Exports that the data plane itself serves, as the segment publishes them: paths and permitted clients from
// the configuration in force, root handles from the data plane.
//
// A directory below the root of an export can be mounted as well. The reactor that owns the exports walks to it and
// answers within a few of its control passes; clients are queued until then. As with other NFS servers, the walk
// checks no permissions of directories, only that the client may have the export.
//
// Who asks by TCP or UDP has an address and no name: an export for hosts by name is given to each permitted address. Its
// handle is of no use to others, since the data plane looks at the name with every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "controlplane/mount/export_paths.h"
#include "controlplane/mount/exports.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/config_block.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::mount {

/// The part of one of several upstreams, as the configuration in force has it. One that is not there, or removed, has a part
/// that no path is in.
ExportPaths export_paths_of(const segment::Layout& layout, const std::string& upstream);

/// Upstreams with a part of the exports, when the data plane serves what is published; else none.
std::vector<segment::UpstreamConfig> group_in_force(const segment::Layout& layout);

/// A question about a directory fails after this time.
inline constexpr std::uint64_t kPathAnswerNs = 5'000'000'000;
/// Interval between two looks for the answer.
inline constexpr std::uint64_t kPathPollNs = 1'000'000;
/// Interval between two log lines about a data plane that does not answer.
inline constexpr std::uint64_t kSilenceLineNs = 10'000'000'000;

class SegmentExports final : public Exports {
 public:
  /// `layout` outlives it; only `path_question` is written.
  explicit SegmentExports(const segment::Layout& layout);
  void mount(const std::string& path, const Asker& asker, OnMount done) override;
  void list(const Asker& asker, OnList done) override;
  void prepare(PollSet& set) override;
  void turn(const PollSet& set, std::uint64_t now_ns) override;

 private:
  struct Waiter {
    std::string path;
    std::uint32_t export_number = 0;
    PeerAddress network;
    bool connected = true;
    std::uint64_t deadline_ns = 0;
    OnMount done;
  };

  MountAnswer root(std::uint32_t export_number) const;
  bool room_for(const Asker& asker) const;
  void ask_next();
  void finish_first(const MountAnswer& answer);
  void fail_late();

  const segment::Layout& layout_;
  std::deque<Waiter> waiters_;  ///< the first one's question is in the segment
  std::uint64_t number_;        ///< of that question
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_line_ns_ = 0;
};

}  // namespace sluice::mount
