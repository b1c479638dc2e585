// SPDX-License-Identifier: Apache-2.0
//
// Plays a responder for a client under test: receives its calls, forwards them to an upstream, and replies in
// the requested manner. Handles one call at a time. Runs on the thread that polls the device.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cli/conformance/function_ref.h"
#include "cli/conformance/rule.h"
#include "dataplane/base/owned.h"
#include "pmd/work_request.h"

namespace sluice::rdma {
class ConnectionManager;
class Device;
struct CmEvent;
}  // namespace sluice::rdma

namespace sluice::conformance {

class Judge;
class MakeUpstream;

struct ResponderConfig {
  std::uint16_t port = 20049;
  std::uint32_t receive_bytes = 4096;  ///< size of a Receive that the responder announces to the client
  std::uint32_t grant = 16;
  std::uint32_t version = 1;                   ///< latest supported version
  std::uint64_t transfer_ns = 30'000'000'000;  ///< longest wait for a transfer, or for credits of the client
};

/// One connection of the client. It exists until the last VisitRef to it is destroyed; `ended` means that it
/// is closed.
struct Visit {
  Visit() = default;
  virtual ~Visit() = default;
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  Conversation talk;
  bool unjudged = false;  ///< a transfer that must fail is in progress; the judge ignores its result
  bool ended = false;

 private:
  friend class VisitRef;
  std::uint32_t references_ = 0;
};

/// Counted reference to a visit. The last reference deletes the visit. May be null.
class VisitRef {
 public:
  VisitRef() = default;
  explicit VisitRef(Visit& visit) : visit_(&visit) { ++visit.references_; }
  VisitRef(const VisitRef& other) : visit_(other.visit_) {
    if (visit_ != nullptr) ++visit_->references_;
  }
  VisitRef(VisitRef&& other) noexcept : visit_(std::exchange(other.visit_, nullptr)) {}
  VisitRef& operator=(VisitRef other) noexcept {
    std::swap(visit_, other.visit_);
    return *this;
  }
  ~VisitRef() {
    if (visit_ != nullptr && --visit_->references_ == 0) delete visit_;
  }

  Visit& operator*() const { return *visit_; }
  Visit* operator->() const { return visit_; }
  friend bool operator==(const VisitRef&, const VisitRef&) = default;
  friend bool operator==(const VisitRef& ref, const Visit* visit) { return ref.visit_ == visit; }

 private:
  Visit* visit_ = nullptr;
};

/// A call that is not answered yet.
struct WaitingCall {
  VisitRef visit;
  ClientMessage message;
  CallSight sight;
  std::uint32_t xid() const { return message.header.xid; }
};

/// Manner in which one call is answered.
struct Manner {
  std::optional<std::uint32_t> grant{};  ///< overrides the responder's setting
  bool always_reply_chunk = false;       ///< uses the Reply chunk if one is offered
  bool padded_results = false;           ///< writes XDR padding to the Write chunks
  rdma::Rkey invalidate{};               ///< handle of the call to invalidate
  std::uint32_t part_bytes = 0;          ///< version 2: longest Send; zero means the client's limit
  bool in_parts = false;                 ///< version 2: sends in parts even if there is a Reply chunk
  bool echoed_reply_chunk = false;       ///< version 2: returns the Reply chunk even if unused
};

/// Properties that a responder of version 2 announces.
using Announcement = std::vector<std::pair<std::uint32_t, Bytes>>;

class Responder {
 public:
  /// Creates a responder. Used at setup. All arguments must outlive it. Throws SetupError.
  Responder(rdma::Device& device, rdma::ConnectionManager& manager, Judge& judge,
            const MakeUpstream& make_upstream, const ResponderConfig& config);
  virtual ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  /// Polls everything once. Received calls are added to waiting() after their Read chunks were read.
  void turn();
  /// Polls until `done` returns true or the time limit has passed. Returns whether it is done.
  bool wait(std::uint64_t limit_ns, FunctionRef<bool()> done);

  std::vector<WaitingCall>& waiting() { return waiting_; }
  WaitingCall take(std::size_t index = 0);
  /// Returns the upstream's reply to the call, or nullopt if it does not reply or the connection has ended.
  std::optional<Bytes> result_of(const WaitingCall& call);
  /// Sends an RPC reply, in the chunks of the call where necessary.
  void answer(const WaitingCall& call, std::span<const std::byte> reply, const Manner& manner = {});
  /// Answers a call with this message, which is not checked.
  void answer_as_it_is(const WaitingCall& call, std::span<const std::byte> message,
                       rdma::Rkey invalidate = {});
  /// Sends RDMA_ERROR. Code 1 is ERR_VERS, and code 2 is ERR_CHUNK. Version 2 permits any code, and `more`
  /// are the words after the code.
  void refuse(const WaitingCall& call, std::uint32_t error, std::initializer_list<std::uint32_t> more = {});
  void serve(const WaitingCall& call, const Manner& manner = {});
  /// Sends a message. In version 2 it is sent as soon as there is a credit, and grants the client new
  /// credits.
  void send(Visit& visit, std::span<const std::byte> message, rdma::Rkey invalidate = {});
  /// Version 2: sends a message with its own credit word.
  void send_as_it_is(Visit& visit, std::span<const std::byte> message);
  /// Version 2: sends properties and the first credits.
  void greet(Visit& visit);
  /// Writes to the chunk from its first octet on, and sets its lengths to the octets written.
  void write(Visit& visit, Segments& chunk, std::span<const std::byte> bytes);
  void write(Visit& visit, const rpcrdma::Segment& segment, std::span<const std::byte> bytes);
  /// Starts an RDMA Read. Returns the memory that holds the octets once the RDMA Read is complete.
  std::span<const std::byte> read(Visit& visit, const rpcrdma::Segment& segment);
  /// Waits until all work requests are complete. Returns false if the connection has failed or ended.
  bool settle(Visit& visit);
  void hang_up(Visit& visit);

  std::uint32_t grant() const { return grant_; }
  void set_grant(std::uint32_t credits) { grant_ = credits; }
  /// Sets the Receive size announced on new connections. Zero disables the private data, so that the default
  /// of 1024 octets applies.
  void set_receive_bytes(std::uint32_t bytes) { receive_bytes_ = bytes; }
  std::uint32_t receive_bytes() const { return receive_bytes_; }
  /// Version 2: sets the properties for new connections.
  void set_announcement(Announcement list) { announcement_ = std::move(list); }
  /// Handler that replaces greet() and all other handling of the first message until it is cleared.
  using FirstAnswer = FunctionRef<void(Visit& visit, const ClientMessage& first)>;
  /// Sets the handler. `answer` must exist until it is cleared.
  template <typename Answer>
  void set_first_answer(Answer& answer) {
    first_answer_.emplace(answer);
  }
  void clear_first_answer() { first_answer_.reset(); }
  /// Handles a first message that a FirstAnswer has postponed.
  void take_first(Visit& visit, ClientMessage first);
  /// Returns the default announcement.
  Announcement usual_announcement() const;
  std::uint64_t calls_served() const { return served_; }
  std::size_t connections() const { return visits_.size(); }
  Judge& judge() { return judge_; }

 protected:
  /// Runs a client in the same thread.
  virtual void other_side() {}
  /// Called for each received message, which it may change, until it returns false. Each call that returns
  /// true delivers the message once more; `before` is the number of earlier deliveries.
  virtual bool arrives(Bytes& message, int before) {
    static_cast<void>(message);
    return before == 0;
  }

 private:
  struct Supply;
  void poll();
  bool poll_until(std::uint64_t limit_ns, FunctionRef<bool()> done);
  void poll_manager();
  void accept(const rdma::CmEvent& event);
  void end(Visit& visit);
  void look_at(Visit& visit);
  void take_message(Visit& visit, Bytes bytes);
  void take_from_upstream(Visit& visit);
  void take_call(const VisitRef& visit, ClientMessage message);
  bool pull(Visit& visit, std::vector<ReadChunk>& chunks, bool& changed);
  void error(Visit& visit, const RawCall& header, std::uint32_t code,
             std::initializer_list<std::uint32_t> more = {});
  void reply_version_1(const WaitingCall& call, RawCall header, std::span<const std::byte> payload,
                       const Manner& manner);
  void reply_version_2(const WaitingCall& call, v2::Header header, std::span<const std::byte> payload,
                       const Manner& manner);
  void send_parts(Visit& visit, const v2::Header& last, std::span<const std::byte> payload,
                  const Manner& manner);
  void take_version_1(Visit& visit, ClientMessage message);
  void take_version_2(Visit& visit, ClientMessage message);
  void take_fixed_version_2(Visit& visit, ClientMessage message);
  static bool turns_to_version_1(const Visit& visit, std::span<const std::byte> message);
  std::uint32_t defect_of(const Visit& visit, const ClientMessage& message) const;
  void flush(Visit& visit);

  rdma::Device& device_;
  rdma::ConnectionManager& manager_;
  Judge& judge_;
  std::uint32_t grant_;
  std::uint32_t receive_bytes_;
  const std::uint64_t transfer_ns_;
  Announcement announcement_;
  std::optional<FirstAnswer> first_answer_;
  std::uint32_t next_xid_ = 0x5EED0001;
  std::uint32_t connections_seen_ = 0;
  std::uint64_t served_ = 0;
  std::uint32_t turns_ = 0;
  std::vector<VisitRef> visits_;
  std::vector<WaitingCall> waiting_;
  Owned<Supply> supply_;
};

}  // namespace sluice::conformance
