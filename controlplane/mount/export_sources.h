// SPDX-License-Identifier: Apache-2.0
//
// Sources of the exports that the MOUNT service offers: an upstream, several upstreams, and the data plane
// itself. All are asynchronous, and run on the MOUNT thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "controlplane/mount/exports.h"
#include "controlplane/mount/protocol.h"
#include "controlplane/mount/statistics.h"
#include "controlplane/onc_rpc/rpc_link.h"
#include "controlplane/onc_rpc/rpcbind.h"
#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/config_block.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::mount {

/// Timeout of a query to an upstream, including a query of its rpcbind for the port.
inline constexpr std::uint64_t kQuestionNs = 5'000'000'000;
inline constexpr std::uint64_t kAnswerAgeNs = 10'000'000'000;
inline constexpr std::size_t kMaxAnswers =
    256;  ///< cached answers, of at most kMaxPath and 64 bytes each, and one list
inline constexpr std::uint64_t kPortAgeNs = 60'000'000'000;
/// Minimum interval between log lines about the upstream.
inline constexpr std::uint64_t kReportNs = 10'000'000'000;
/// Limits of clients that wait for an upstream: in total, per network, and for UDP.
inline constexpr std::size_t kMaxWaiting = 256;
inline constexpr std::size_t kMaxWaitingOfNetwork = 32;
inline constexpr std::size_t kMaxWaitingDatagrams = 128;

/// Exports of an upstream server, obtained from its MOUNT version 3 service (RFC 1813, appendix I). Its
/// file handles are valid in calls that are forwarded to it. The upstream sees and authorizes the address
/// of the gateway, so its answer is the same for every client. Access of individual clients is checked
/// here. Identical queries are coalesced, and answers are cached for kAnswerAgeNs.
class UpstreamExports final : public Exports {
 public:
  /// Returns the address of the upstream, or nothing if it is not known yet.
  using Where = Function<std::optional<PeerAddress>()>;
  enum class Ports : std::uint8_t {
    Any,
    Privileged,  ///< MNT is refused unless its source port is below 1024
  };
  /// `statistics` outlives this object. `rpcbind_port` is the port of the upstream's rpcbind; tests use
  /// another one.
  UpstreamExports(const segment::UpstreamConfig& upstream, Where where, MountStatistics& statistics,
                  std::uint16_t rpcbind_port = onc_rpc::kRpcbindPort, Ports client_ports = Ports::Any);
  void mount(const std::string& path, const onc_rpc::Asker& asker, OnMount done) override;
  void list(const onc_rpc::Asker& asker, OnList done) override;
  void prepare(PollSet& set) override;
  void poll(const PollSet& set, std::uint64_t now_ns) override;

  std::size_t remembered() const { return answers_.size(); }

 private:
  struct Answer {
    MountAnswer mount;
    std::vector<std::string> paths;
    std::uint64_t good_until_ns = 0;
  };
  /// Subject of a query: a path to mount, or the list of exports.
  struct Subject {
    bool list = false;
    std::string path;
    bool operator<(const Subject& other) const {
      return std::tie(list, path) < std::tie(other.list, other.path);
    }
  };
  struct Waiter {
    PeerAddress network;
    bool connected = true;
    Function<void(const Answer*)> done;  ///< receives null if there is no answer
  };
  struct Question {
    std::vector<Waiter> waiters;
    std::uint64_t deadline_ns = 0;
    bool asked_port_twice = false;
  };

  void ask(const Subject& subject, const onc_rpc::Asker& asker, Function<void(const Answer*)> done);
  bool room_for(const onc_rpc::Asker& asker) const;
  const Answer* remembered(const Subject& subject, std::uint64_t now_ns) const;
  bool find_address();
  void find_port(const Subject& subject);
  void port_found(onc_rpc::Failure failure, xdr::Reader results);
  void send(const Subject& subject);
  void replied(const Subject& subject, onc_rpc::Failure failure, xdr::Reader results);
  void finish(const Subject& subject, onc_rpc::Failure failure, const Answer* answer);
  void remember(const Subject& subject, const Answer& answer);
  void report(onc_rpc::Failure failure);

  const segment::UpstreamConfig upstream_;
  const Where where_;
  MountStatistics& statistics_;
  onc_rpc::RpcLink rpcbind_;
  onc_rpc::RpcLink mount_;
  std::uint64_t now_ns_ = 0;
  const std::uint16_t rpcbind_port_;
  const Ports client_ports_;
  PeerAddress address_{};
  std::uint16_t port_ = 0;  ///< zero if unknown
  std::uint64_t port_until_ns_ = PollSet::kNever;
  bool finding_port_ = false;
  std::deque<Subject> without_port_;  ///< queries that wait for the port
  std::map<Subject, Question> questions_;
  std::map<Subject, Answer> answers_;
  onc_rpc::Failure reported_ = onc_rpc::Failure::None;
  std::uint64_t next_report_ns_ = 0;
};

/// Time for which a removed member is kept to complete its outstanding calls.
inline constexpr std::uint64_t kRetiredNs = 2 * kQuestionNs;
/// Minimum interval between log lines about exports that cannot be mounted, because clients could fill the
/// log.
inline constexpr std::uint64_t kRefusalLineNs = 1'000'000'000;

/// Exports of several upstreams, each of which has a part of the paths. File handles for clients are
/// prefixed with the tag of their upstream, by which the data plane routes later calls. The parts and the
/// set of upstreams are read with every call, because a reload can change them.
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
  void mount(const std::string& path, const onc_rpc::Asker& asker, OnMount done) override;
  /// Lists the paths of all upstreams that answer. The result is null if none answers.
  void list(const onc_rpc::Asker& asker, OnList done) override;
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

/// Exports that the data plane itself serves. Paths and permitted clients come from the applied
/// configuration, and root handles from the data plane, both published in the segment.
///
/// A directory below the root of an export can be mounted as well. The reactor that owns the exports
/// resolves the path and answers within a few of its control iterations; clients are queued until then. As
/// with other NFS servers, the lookup does not check permissions of directories, only the client's access
/// to the export.
///
/// Clients of TCP and UDP have an address but no authenticated name. Therefore an export for named hosts is
/// given to every permitted address. Its handle is useless to other hosts, because the data plane checks
/// the name with every call.
class SegmentExports final : public Exports {
 public:
  /// `layout` outlives this object; only `path_question` is written.
  explicit SegmentExports(const segment::Layout& layout);
  void mount(const std::string& path, const onc_rpc::Asker& asker, OnMount done) override;
  void list(const onc_rpc::Asker& asker, OnList done) override;
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
  bool room_for(const onc_rpc::Asker& asker) const;
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
