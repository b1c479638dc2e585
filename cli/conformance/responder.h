// SPDX-License-Identifier: Apache-2.0
//
// Plays a responder of version 1 for a client under judgement: takes its calls, asks an upstream, and answers as it is told to.
// One call at a time. The thread that polls the device.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "cli/conformance/judge.h"
#include "cli/conformance/nfs.h"
#include "cli/conformance/raw_endpoint.h"
#include "cli/conformance/upstream.h"

namespace sluice::conformance {

struct ResponderConfig {
  std::uint16_t port = 20049;
  std::uint32_t receive_bytes = 4096;  ///< that the client is told
  std::uint32_t grant = 16;
};

/// One connection of the client. It stays while anything refers to it; `ended` says that it is of no use.
struct Visit {
  explicit Visit(std::unique_ptr<RawEndpoint> own) : end(std::move(own)) {}
  std::unique_ptr<RawEndpoint> end;
  rdma::CmId id{};
  Conversation talk;
  std::unique_ptr<Upstream> upstream;
  std::deque<ClientMessage> calls{};  ///< whose Read chunks are not pulled yet
  std::deque<Bytes> replies{};        ///< of the upstream
  std::set<std::uint32_t> reverse{};  ///< XIDs of the upstream's calls
  std::size_t posted = 0;             ///< work requests without a completion
  bool unjudged = false;              ///< a transfer is made that has to fail
  bool ended = false;
};

/// A call that waits to be answered.
struct WaitingCall {
  std::shared_ptr<Visit> visit;
  ClientMessage message;
  CallSight sight;
  std::uint32_t xid() const { return message.header.xid; }
};

/// How one call is answered.
struct Manner {
  std::optional<std::uint32_t> grant{};  ///< instead of what the responder is set to
  bool always_reply_chunk = false;       ///< where one is offered
  bool padded_results = false;           ///< in their Write chunks
  rdma::Rkey invalidate{};               ///< of the call
};

class Responder {
 public:
  /// Setup. All outlive it. Throws SetupError.
  Responder(rdma::Device& device, rdma::ConnectionManager& manager, Judge& judge, MakeUpstream make_upstream,
            const ResponderConfig& config);
  virtual ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  /// Polls everything once. Calls that have come are in waiting(), their Read chunks pulled in.
  void turn();
  /// Turns until `done`, or until so much time has passed. Returns whether it is done.
  bool wait(std::uint64_t limit_ns, const std::function<bool()>& done);

  std::deque<WaitingCall>& waiting() { return waiting_; }
  WaitingCall take(std::size_t index = 0);
  /// What the upstream says to the call; nothing when it does not answer, or the connection has ended.
  std::optional<Bytes> result_of(const WaitingCall& call);
  /// Sends an RPC reply, in the chunks of the call where they are needed.
  void answer(const WaitingCall& call, std::span<const std::byte> reply, const Manner& manner = {});
  /// RDMA_ERROR: 1 ERR_VERS, 2 ERR_CHUNK.
  void refuse(const WaitingCall& call, std::uint32_t error);
  void serve(const WaitingCall& call, const Manner& manner = {});
  void send(Visit& visit, std::span<const std::byte> message, rdma::Rkey invalidate = {});
  /// From the first octet of the chunk on; its lengths are then what was written.
  void write(Visit& visit, Segments& chunk, std::span<const std::byte> bytes);
  void write(Visit& visit, const rpcrdma::Segment& segment, std::span<const std::byte> bytes);
  /// Where the octets will be once the RDMA Read is complete.
  std::span<const std::byte> read(Visit& visit, const rpcrdma::Segment& segment);
  /// Waits for all work requests; false: the connection has failed or ended.
  bool settle(Visit& visit);
  void hang_up(Visit& visit);

  std::uint32_t grant() const { return grant_; }
  void set_grant(std::uint32_t credits) { grant_ = credits; }
  /// For connections from now on; zero: no private data, which leaves 1024 octets.
  void set_receive_bytes(std::uint32_t bytes) { receive_bytes_ = bytes; }
  std::uint32_t receive_bytes() const { return receive_bytes_; }
  std::uint64_t calls_served() const { return served_; }
  std::size_t connections() const { return visits_.size(); }
  Judge& judge() { return judge_; }

 protected:
  /// A client in the same thread takes its turn.
  virtual void other_side() {}
  /// A message has come, and may be changed; false: it is lost.
  virtual bool arrives(Bytes& message) {
    static_cast<void>(message);
    return true;
  }

 private:
  void poll();
  bool poll_until(std::uint64_t limit_ns, const std::function<bool()>& done);
  void poll_manager();
  void accept(const rdma::CmEvent& event);
  void end(Visit& visit);
  void look_at(Visit& visit);
  void take_message(Visit& visit, Bytes bytes);
  void take_from_upstream(Visit& visit);
  void take_call(const std::shared_ptr<Visit>& visit, ClientMessage message);
  bool pull(Visit& visit, std::vector<ReadChunk>& chunks, bool& changed);
  void error(Visit& visit, const RawCall& header, std::uint32_t code);

  rdma::Device& device_;
  rdma::ConnectionManager& manager_;
  Judge& judge_;
  MakeUpstream make_upstream_;
  std::uint32_t grant_;
  std::uint32_t receive_bytes_;
  std::uint32_t connections_seen_ = 0;
  std::uint64_t served_ = 0;
  std::uint32_t turns_ = 0;
  std::vector<std::shared_ptr<Visit>> visits_;
  std::vector<std::unique_ptr<RawEndpoint>> spare_;
  std::deque<WaitingCall> waiting_;
};

}  // namespace sluice::conformance
