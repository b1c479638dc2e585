// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/commands.h"

#include "dataplane/reactor/follower.h"

namespace sluice::reactor {
namespace {

bool makes_connection(const segment::Command& command) noexcept {
  return command.type == segment::CommandType::Accept || command.type == segment::CommandType::Connect;
}

}  // namespace

Commands::Commands(segment::ReactorArea& area, ConnectionSetup& setup, ServerDialer& dialer,
                   EventSender& events, Counters& counters, Clock clock)
    : area_(area), setup_(setup), dialer_(dialer), events_(events), counters_(counters), clock_(clock) {}

bool Commands::poll() noexcept {
  if (!send_answer()) return false;
  std::size_t count = 0;
  if (connecting_) {
    if (!finish_connecting() || !send_answer()) return true;
    ++count;
  }
  segment::Command command;
  for (; count < kCommandsPerPass; ++count) {
    if (waiting_)
      command = *waiting_;
    else if (!area_.commands.pop(command))
      return count > 0;
    if (makes_connection(command) && !(pace_.due(clock_()) && setup_.has_queue_pair())) {
      if (!waiting_) ++counters_.connections_delayed;
      waiting_ = command;
      return true;
    }
    waiting_.reset();
    run(command);
    if (connecting_ || !send_answer()) return true;
  }
  return true;
}

/// False while the answer to the last command finds no room: no further command is taken, so that none is lost.
bool Commands::send_answer() noexcept {
  if (answer_ && events_.try_send(*answer_)) answer_.reset();
  return !answer_;
}

void Commands::run(const segment::Command& command) noexcept {
  segment::Event done{.type = segment::EventType::CommandDone,
                      .id = command.id,
                      .cm_id = command.cm_id,
                      .connection = command.connection,
                      .peer = {}};
  const std::uint64_t begin_ns = makes_connection(command) ? clock_() : 0;
  done.status = execute(command, done);
  if (begin_ns != 0) pace_.made(begin_ns, clock_());
  if (!makes_connection(command) || done.status != segment::CommandStatus::Done) return answer(done);
  connecting_ = done;
  finish_connecting();
}

/// False while the device connects.
bool Commands::finish_connecting() noexcept {
  const auto status = setup_.finish(*connecting_);
  if (!status) return false;
  connecting_->status = *status;
  answer(*connecting_);
  connecting_.reset();
  return true;
}

void Commands::answer(const segment::Event& done) noexcept {
  ++(done.status == segment::CommandStatus::Done ? counters_.commands : counters_.commands_refused);
  if (done.id == 0) return;
  answer_ = done;
  if (!send_answer()) ++counters_.answers_delayed;
}

segment::CommandStatus Commands::execute(const segment::Command& command, segment::Event& done) noexcept {
  using segment::CommandStatus;
  switch (command.type) {
    case segment::CommandType::Accept:
      return setup_.accept(command, done);
    case segment::CommandType::Reject:
      return setup_.reject(command);
    case segment::CommandType::Connect:
      return dialer_.connect(command, done);
    case segment::CommandType::ConnectFailed:
      return dialer_.connect_failed(command);
    case segment::CommandType::Shutdown:
      shutdown_ = true;
      return CommandStatus::Done;
  }
  return CommandStatus::UnknownConnection;  // a type that is none
}

namespace {

rpcrdma::CloseReason close_reason(std::uint32_t reason) {
  const bool known = reason != 0 && reason <= static_cast<std::uint32_t>(rpcrdma::CloseReason::Silent);
  return known ? static_cast<rpcrdma::CloseReason>(reason) : rpcrdma::CloseReason::LocalClose;
}

/// The changes, as segment::follow() finds them.
class Changes {
 public:
  Changes(rpcrdma::Connection& connection, ConnectionRecord& record, ConnectionSetup& setup)
      : connection_(connection), record_(record), setup_(setup) {}

  void set_parameters(const segment::Parameters& parameters) noexcept {
    connection_.apply({.send_bytes = parameters.send_bytes,
                       .max_segment_bytes = parameters.max_segment_bytes,
                       .max_segments = parameters.max_segments,
                       .reverse = static_cast<rpcrdma::v2::ReverseSupport>(parameters.reverse)});
  }
  void admit(const HostName& host) noexcept { connection_.admit(host); }
  void set_grant(const segment::Grant& grant) noexcept {
    if (grant.client_class != segment::kKeepClass) connection_.set_client_class(grant.client_class);
    if (grant.credits == 0) return;
    // A connection that is being drained keeps its single credit.
    if (record_.draining)
      record_.credits_after_drain = grant.credits;
    else
      connection_.set_credits(grant.credits);
  }
  void set_established() noexcept { setup_.mark_established(connection_); }
  void set_draining(bool on) noexcept {
    if (record_.draining == on) return;
    record_.draining = on;
    if (on) record_.credits_after_drain = static_cast<std::uint32_t>(connection_.responder().grant());
    connection_.set_credits(on ? 1 : record_.credits_after_drain);
  }
  void set_traced(bool on) noexcept { connection_.responder().set_traced(on); }
  void end(segment::End how, std::uint32_t reason) noexcept {
    switch (how) {
      case segment::End::No:
        return;
      case segment::End::PeerGone:
        return connection_.close(rpcrdma::CloseReason::PeerClosed);
      case segment::End::Disconnect:
        return setup_.disconnect(connection_, close_reason(reason));
    }
  }

 private:
  rpcrdma::Connection& connection_;
  ConnectionRecord& record_;
  ConnectionSetup& setup_;
};

}  // namespace

Follower::Follower(segment::ReactorArea& area, ConnectionTable& connections, ConnectionSetup& setup,
                   Publisher& publisher, Counters& counters)
    : area_(area), connections_(connections), setup_(setup), publisher_(publisher), counters_(counters) {}

bool Follower::poll() noexcept {
  bool any = false;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < kHintsPerPass && area_.wanted.hints.pop(number); ++i)
    if (rpcrdma::Connection* const connection = connections_.find_number(number)) any |= follow(*connection);
  return any;
}

void Follower::look(rpcrdma::Connection& connection) noexcept {
  ConnectionRecord& record = connections_.record(connection);
  if (unattended_) {
    if (!record.unattended && !record.draining && !record.outgoing) restore_credits(connection);
  } else if (record.unattended) {
    record.unattended = false;
    record.followed.grant = 0;  // what is wanted counts again, also if it is what it was
  }
  if (follow(connection)) ++counters_.wants_found;
}

void Follower::observe(std::uint64_t beats, std::uint64_t now_ns) noexcept {
  if (beats != beats_ || beat_ns_ == 0) {
    beats_ = beats;
    beat_ns_ = now_ns;
  }
  unattended_ = now_ns - beat_ns_ >= segment::kHeartbeatTimeoutNs;
}

void Follower::restore_credits(rpcrdma::Connection& connection) noexcept {
  const std::uint32_t all = connection.config().credit_grant;
  connections_.record(connection).unattended = true;
  if (static_cast<std::uint32_t>(connection.responder().grant()) >= all) return;
  connection.set_credits(all);
  ++counters_.credits_restored;
  publisher_.publish_connection(connection);
}

bool Follower::follow(rpcrdma::Connection& connection) noexcept {
  const std::uint16_t number = connection.number();
  ConnectionRecord& record = connections_.record(number);
  const bool changed = segment::follow(area_.wanted, number, record.incarnation, record.followed,
                                       Changes(connection, record, setup_));
  if (!changed) return false;
  ++counters_.wants_followed;
  // One that has ended is published when it is released.
  if (connection.is_open()) publisher_.publish_connection(connection);
  return true;
}

}  // namespace sluice::reactor
