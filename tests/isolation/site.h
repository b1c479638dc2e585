// SPDX-License-Identifier: Apache-2.0
//
// A server on the loopback driver whose connections are all in use: one by a client that behaves, the others
// by hostile peers. It has one thread and a simulated clock, so that every run is identical. Each iteration
// runs the server's loop once and each peer once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/reactor/commands.h"
#include "dataplane/service/memory/memory_service.h"
#include "tests/conformance/lab.h"

namespace sluice::isolation {

using conformance::Bytes;
using conformance::RawPeer;
using conformance::TestService;

inline constexpr std::uint64_t kSecond = 1'000'000'000;

/// Iterations between two control passes. A reactor makes 256, and so does a site whose iterations are
/// measured.
inline constexpr std::uint64_t kTurnsPerPass = 32;
inline constexpr std::uint64_t kTurnsPerMeasuredPass = 256;
/// Iterations in which the hostile peers connect and take as many resources as they can.
inline constexpr int kTurnsToBegin = 4000;
inline constexpr std::uint64_t kTurnToBeginNs = 10'000;

/// A peer that can send any message.
class Peer {
 public:
  Peer(std::shared_ptr<rdma::loopback::Fabric> fabric, const std::string& name, std::uint32_t receives);
  ~Peer();

  /// Connects again. Drops the previous connection with everything outstanding on it.
  void connect();
  /// Destroys the queue pair without disconnecting.
  void vanish();
  bool connected() const { return up_; }
  /// True if the connection has been ended, or was refused.
  bool lost() const { return lost_ || raw_->failed; }
  RawPeer& raw() { return *raw_; }
  void poll();

  std::uint64_t turns = 0;  ///< iterations since it was connected
  std::uint64_t sent = 0;   ///< messages since it was connected; incremented by the attack

 private:
  std::unique_ptr<rdma::Device> device_;
  const std::uint32_t receives_;
  std::unique_ptr<RawPeer> raw_;
  bool up_ = false;
  bool lost_ = false;
};

struct SiteOptions {
  std::uint32_t connections = 8;
  std::uint32_t credits = 16;  ///< calls that each client may have outstanding
  bool hold_calls = false;     ///< hostile peers have to authenticate first
  bool callers = false;        ///< the server has requesters on the hostile connections
  bool measured = false;       ///< the clock advances by the duration of an iteration, not by a constant
};

/// Returns the time of the steady clock, in nanoseconds.
std::uint64_t clock_ns() noexcept;

class Site {
 public:
  explicit Site(const SiteOptions& options);
  ~Site();

  const SiteOptions& options() const { return options_; }
  std::unique_ptr<Peer> make_peer(const std::string& name, std::uint32_t receives);
  /// Whether the next connections belong to the client that behaves.
  void expect_victim(bool victim) { victim_next_ = victim; }
  /// Runs one iteration after advancing the clock by `ns`. Zero: by the duration of an iteration.
  void turn(std::uint64_t ns = 0);
  /// Runs the server's poll alone, without advancing the clock.
  void poll_engine() { engine_->poll(now_ns_); }
  std::uint64_t turns() const { return turns_; }
  std::uint64_t refused() const { return refused_; }

  rpcrdma::Engine& engine() { return *engine_; }
  TestService& service() { return *service_; }
  /// NFS version 3, with one export.
  const service::memory::MemoryService& files() const { return *files_; }
  rpcrdma::Connection* victim() { return victim_; }
  /// Close reasons of the hostile connections.
  const std::vector<rpcrdma::CloseReason>& ends() const { return ends_; }
  std::uint32_t open_connections() const;

 private:
  /// Runs the work that a reactor does off the message path.
  void control_pass();
  void on_event(const rdma::CmEvent& event);
  /// Accepts one pending connection, if it is due.
  void accept_next();
  void accept(const rdma::CmEvent& event);

  const SiteOptions options_;
  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  std::unique_ptr<rdma::Device> device_;
  std::unique_ptr<rpcrdma::Engine> engine_;
  std::unique_ptr<TestService> service_;
  std::unique_ptr<service::memory::MemoryService> files_;
  std::vector<std::unique_ptr<rpcrdma::Requester>> requesters_;
  struct Accepted {
    rdma::CmId id;
    rpcrdma::Connection* connection;
  };
  std::vector<Accepted> accepted_;
  std::vector<rdma::CmEvent> requests_;
  reactor::SetupPace pace_;
  rpcrdma::Connection* victim_ = nullptr;
  bool victim_next_ = false;
  std::vector<rpcrdma::CloseReason> ends_;
  std::uint64_t turns_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t now_ns_ = 1;
  std::uint64_t turn_ns_ = 1000;
};

}  // namespace sluice::isolation
