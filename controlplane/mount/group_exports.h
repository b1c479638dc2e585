// SPDX-License-Identifier: Apache-2.0
//
// Exports of several upstreams, each of which has a part of the paths. The file handles that clients get have the tag of
// their upstream in front, by which the data plane knows later where a call goes.
//
// Which part is whose is asked with each call, so that it can change, and so is who the upstreams are.
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

/// A member that is none any more answers what it was asked before for so long.
inline constexpr std::uint64_t kRetiredNs = 2 * kQuestionNs;
/// Between one line of the log about an export that cannot be mounted and the next: who asks could fill it.
inline constexpr std::uint64_t kRefusalLineNs = 1'000'000'000;

class GroupExports final : public Exports {
 public:
  struct Member {
    segment::UpstreamConfig upstream;
    std::unique_ptr<Exports> exports;
    std::uint64_t retired_ns = 0;  ///< zero: it is not
  };
  /// The parts of the members, by their names.
  using Parts = Function<ExportPaths(const std::string& name)>;
  /// Of members that a reload adds, removes or changes.
  struct Newcomers {
    Function<std::vector<segment::UpstreamConfig>()>
        in_force;  ///< returns all members; without it the members stay
    Function<std::unique_ptr<Exports>(const segment::UpstreamConfig& upstream)> make;
  };

  /// `statistics` outlives it.
  GroupExports(std::vector<Member> members, Parts parts, MountStatistics& statistics, Newcomers newcomers);
  void mount(const std::string& path, const Asker& asker, OnMount done) override;
  /// Without those of upstreams that do not answer; null if none does.
  void list(const Asker& asker, OnList done) override;
  void prepare(PollSet& set) override;
  void turn(const PollSet& set, std::uint64_t now_ns) override;

 private:
  void follow_reloads(std::uint64_t now_ns);
  MountAnswer tagged(const Member& member, MountAnswer answer, std::uint64_t now_ns);
  MountAnswer refused(const Member& member, MountStatus status, const std::string& why, std::uint64_t now_ns);

  std::list<Member> members_;
  const Parts parts_;
  MountStatistics& statistics_;
  const Newcomers newcomers_;
  std::uint64_t next_line_ns_ = 0;
};

}  // namespace sluice::mount
