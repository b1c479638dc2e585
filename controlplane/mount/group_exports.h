// SPDX-License-Identifier: Apache-2.0
//
// Exports of several upstreams, each of which has a part of the paths. File handles for clients are prefixed
// with the tag of their upstream, by which the data plane routes later calls.
//
// The parts and the set of upstreams are read with every call, because a reload can change them.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "controlplane/mount/export_paths.h"
#include "controlplane/mount/exports.h"
#include "controlplane/mount/statistics.h"
#include "controlplane/mount/upstream_exports.h"
#include "dataplane/base/function.h"

namespace sluice::mount {

/// Time for which a removed member is kept to complete its outstanding calls.
inline constexpr std::uint64_t kRetiredNs = 2 * kQuestionNs;
/// Minimum interval between log lines about exports that cannot be mounted, because clients could fill the
/// log.
inline constexpr std::uint64_t kRefusalLineNs = 1'000'000'000;

class GroupExports final : public Exports {
 public:
  struct Member {
    segment::UpstreamConfig upstream;
    std::unique_ptr<Exports> exports;
    std::uint64_t retired_ns = 0;  ///< time of removal; zero for an active member
  };
  /// Returns the part of a member by its name.
  using Parts = Function<ExportPaths(const std::string& name)>;
  /// Factory for members that a reload adds, removes or changes.
  struct MemberSource {
    Function<std::vector<segment::UpstreamConfig>()>
        in_force;  ///< returns all current members; an empty list leaves the members unchanged
    Function<std::unique_ptr<Exports>(const segment::UpstreamConfig& upstream)> make;
  };

  /// `statistics` outlives this object.
  GroupExports(std::vector<Member> members, Parts parts, MountStatistics& statistics, MemberSource source);
  void mount(const std::string& path, const Asker& asker, OnMount done) override;
  /// Lists the paths of all upstreams that answer. The result is null if none answers.
  void list(const Asker& asker, OnList done) override;
  void prepare(PollSet& set) override;
  void poll(const PollSet& set, std::uint64_t now_ns) override;

 private:
  void follow_reloads(std::uint64_t now_ns);
  MountAnswer tagged(const Member& member, MountAnswer answer, std::uint64_t now_ns);
  MountAnswer refused(const Member& member, MountStatus status, const std::string& why, std::uint64_t now_ns);

  std::list<Member> members_;
  const Parts parts_;
  MountStatistics& statistics_;
  const MemberSource source_;
  std::uint64_t next_line_ns_ = 0;
};

}  // namespace sluice::mount
