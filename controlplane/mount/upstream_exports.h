// SPDX-License-Identifier: Apache-2.0
//
// Exports of an upstream server, obtained from its MOUNT version 3 service (RFC 1813, appendix I). Its file
// handles are valid in calls that are forwarded to it. The upstream sees and authorizes the address of the
// gateway, so its answer is the same for every client. Access of individual clients is checked here.
//
// Asynchronous. Identical queries are coalesced, and answers are cached for kAnswerAgeNs.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "controlplane/mount/exports.h"
#include "controlplane/mount/protocol.h"
#include "controlplane/mount/rpc_link.h"
#include "controlplane/mount/statistics.h"
#include "dataplane/base/function.h"
#include "dataplane/segment/config_block.h"

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
                  std::uint16_t rpcbind_port = kRpcbindPort, Ports client_ports = Ports::Any);
  void mount(const std::string& path, const Asker& asker, OnMount done) override;
  void list(const Asker& asker, OnList done) override;
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

  void ask(const Subject& subject, const Asker& asker, Function<void(const Answer*)> done);
  bool room_for(const Asker& asker) const;
  const Answer* remembered(const Subject& subject, std::uint64_t now_ns) const;
  bool find_address();
  void find_port(const Subject& subject);
  void port_found(Failure failure, xdr::Reader results);
  void send(const Subject& subject);
  void replied(const Subject& subject, Failure failure, xdr::Reader results);
  void finish(const Subject& subject, Failure failure, const Answer* answer);
  void remember(const Subject& subject, const Answer& answer);
  void report(Failure failure);

  const segment::UpstreamConfig upstream_;
  const Where where_;
  MountStatistics& statistics_;
  RpcLink rpcbind_;
  RpcLink mount_;
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
  Failure reported_ = Failure::None;
  std::uint64_t next_report_ns_ = 0;
};

}  // namespace sluice::mount
