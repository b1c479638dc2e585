// SPDX-License-Identifier: Apache-2.0
//
// Exports that the data plane itself serves. Paths and permitted clients come from the applied configuration,
// and root handles from the data plane, both published in the segment.
//
// A directory below the root of an export can be mounted as well. The reactor that owns the exports resolves
// the path and answers within a few of its control iterations; clients are queued until then. As with other
// NFS servers, the lookup does not check permissions of directories, only the client's access to the export.
//
// Clients of TCP and UDP have an address but no authenticated name. Therefore an export for named hosts is
// given to every permitted address. Its handle is useless to other hosts, because the data plane checks the
// name with every call.
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

/// Returns the export paths of one of several upstreams in the applied configuration. For an upstream that is
/// removed or does not exist, returns a value that no path matches.
ExportPaths export_paths_of(const segment::Layout& layout, const std::string& upstream);

/// Returns the upstreams with a part of the exports. Returns none unless the data plane has applied the
/// published configuration.
std::vector<segment::UpstreamConfig> group_in_force(const segment::Layout& layout);

/// Timeout of a query about a directory.
inline constexpr std::uint64_t kPathAnswerNs = 5'000'000'000;
/// Interval between checks for the answer.
inline constexpr std::uint64_t kPathPollNs = 1'000'000;
/// Minimum interval between log lines about a data plane that does not answer.
inline constexpr std::uint64_t kSilenceLineNs = 10'000'000'000;

class SegmentExports final : public Exports {
 public:
  /// `layout` outlives this object; only `path_question` is written.
  explicit SegmentExports(const segment::Layout& layout);
  void mount(const std::string& path, const Asker& asker, OnMount done) override;
  void list(const Asker& asker, OnList done) override;
  void prepare(PollSet& set) override;
  void poll(const PollSet& set, std::uint64_t now_ns) override;

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
  std::deque<Waiter> waiters_;  ///< the query of the first waiter is in the segment
  std::uint64_t number_;        ///< number of that query
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_line_ns_ = 0;
};

}  // namespace sluice::mount
