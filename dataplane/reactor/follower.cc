// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/follower.h"

namespace sluice::reactor {
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
