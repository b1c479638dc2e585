// SPDX-License-Identifier: Apache-2.0
//
// Calls to an upstream and to clients, which are repeated until their deadlines.
#include "controlplane/locks/courier.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "controlplane/locks/callbacks.h"

namespace sluice::locks {

using mount::Failure;

void Courier::move_to(const PeerAddress& address) {
  if (address == to_.address) return;
  to_.address = address;
  port_ = 0;
  not_before_ns_ = 0;
}

void Courier::send(Bytes call, std::uint64_t now_ns, std::uint64_t deadline_ns, Done done) {
  now_ns_ = now_ns;
  calls_.push_back({.number = ++last_number_,
                    .message = std::move(call),
                    .deadline_ns = deadline_ns,
                    .done = std::move(done)});
  dispatch(now_ns);
}

void Courier::find_port(std::uint64_t now_ns) {
  if (to_.address == PeerAddress{}) return again(Failure::Unresolved);
  if (std::exchange(finding_port_, true)) return;
  rpcbind_.set_server({mount::server_at(to_.address, to_.rpcbind_port, false)});
  std::array<std::byte, 64> room;
  xdr::Writer arguments(room);
  const bool four = is_mapped_ipv4(to_.address);
  if (four)
    arguments.words(to_.program, to_.version, IPPROTO_TCP, 0);
  else
    encode(arguments,
           mount::Registration{
               .program = to_.program, .version = to_.version, .netid = "tcp6", .address = {}, .owner = {}});
  rpcbind_.call(four ? mount::kGetPort : mount::kGetAddress, arguments.written(), false, now_ns,
                now_ns + kAskPortNs, [this, address = to_.address](Failure failure, xdr::Reader results) {
                  finding_port_ = false;
                  if (address == to_.address) port_found(failure, results);  // else it is asked again
                });
}

void Courier::port_found(Failure failure, xdr::Reader results) {
  if (failure != Failure::None) return again(failure);
  const std::uint32_t port =
      is_mapped_ipv4(to_.address) ? results.u32() : mount::port_of_universal(results.string(mount::kMaxName));
  if (!results.ok() || port == 0 || port > 65535) return again(Failure::Unreachable);
  port_ = static_cast<std::uint16_t>(port);
  dispatch(now_ns_);
}

/// TX: those that wait, in order. None before all that were sent earlier are under way again.
void Courier::dispatch(std::uint64_t now_ns) {
  const bool waiting =
      std::any_of(calls_.begin(), calls_.end(), [](const Call& call) { return !call.under_way; });
  if (!waiting || now_ns < not_before_ns_) return;
  if (port_ == 0) return find_port(now_ns);
  mount::Server server = mount::server_at(to_.address, port_, to_.privileged_port);
  server.from = to_.from;
  link_.set_server(server);
  for (Call& call : calls_) {
    if (std::exchange(call.under_way, true)) continue;
    link_.pass_on(call.message, now_ns, std::min(call.deadline_ns, now_ns + kAttemptNs),
                  [this, number = call.number](Failure failure, std::span<const std::byte> reply) {
                    answered(number, failure, reply);
                  });
  }
}

/// RX. A program that is not there any more is no answer: its port is another by now.
void Courier::answered(std::uint64_t number, Failure failure, std::span<const std::byte> reply) {
  const auto at =
      std::find_if(calls_.begin(), calls_.end(), [&](const Call& call) { return call.number == number; });
  if (at == calls_.end()) return;
  if (failure == Failure::None) {
    xdr::Reader reader(reply);
    const auto decoded = rpc::decode_reply(reader);
    const bool other_program = decoded.ok && decoded.header.stat == rpc::ReplyStat::Accepted &&
                               decoded.header.accept == rpc::AcceptStat::ProgUnavail;
    if (!decoded.ok || other_program) failure = Failure::Refused;
  }
  if (failure != Failure::None) {
    at->under_way = false;
    count(statistics_.resent);
    return again(failure);
  }
  problem_ = nullptr;
  const Done done = std::move(at->done);
  calls_.erase(at);
  done(reply);
}

void Courier::again(Failure failure) {
  if (failure != Failure::Lost) {
    problem_ = mount::to_string(failure);
    port_ = 0;
  }
  not_before_ns_ = now_ns_ + kAgainNs;
}

void Courier::prepare(mount::PollSet& set) {
  rpcbind_.prepare(set);
  link_.prepare(set);
  for (const Call& call : calls_) {
    set.wake_at(call.deadline_ns);
    if (!call.under_way && !finding_port_) set.wake_at(not_before_ns_);
  }
}

void Courier::turn(const mount::PollSet& set, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  rpcbind_.turn(set, now_ns);
  link_.turn(set, now_ns);
  dispatch(now_ns);
  // From a copy: who is told may send the next call.
  std::list<Call> overdue;
  for (auto at = calls_.begin(); at != calls_.end();) {
    const auto next = std::next(at);
    if (at->deadline_ns <= now_ns) overdue.splice(overdue.end(), calls_, at);
    at = next;
  }
  for (const Call& call : overdue) call.done({});
}

Bytes call_message(const mount::Procedure& procedure, const rpc::OpaqueAuth& credential,
                   std::span<const std::byte> arguments) {
  Bytes message(rpc::kMinCallBytes + rpc::kMaxAuthBytes + arguments.size());
  xdr::Writer writer(message);
  rpc::encode_call(writer, {.xid = {},
                            .program = procedure.program,
                            .version = procedure.version,
                            .procedure = procedure.procedure,
                            .credential = credential,
                            .verifier = {}});
  writer.opaque_fixed(arguments);
  message.resize(writer.position());
  return message;
}

bool Callbacks::call(const Destination& to, Bytes message, std::uint64_t now_ns, std::uint64_t deadline_ns,
                     Courier::Done done) {
  const Key key{to.address.bytes, to.from.value_or(PeerAddress{}).bytes, to.program};
  auto at = callees_.find(key);
  if (at == callees_.end()) {
    if (callees_.size() >= kMaxCallees) {
      const auto unused = std::find_if(callees_.begin(), callees_.end(),
                                       [](const auto& entry) { return entry.second.courier.idle(); });
      if (in_turn_ || unused == callees_.end()) return false;
      callees_.erase(unused);
    }
    at = callees_.try_emplace(key, to, statistics_).first;
  }
  at->second.used_ns = now_ns;
  at->second.courier.send(std::move(message), now_ns, deadline_ns, std::move(done));
  return true;
}

void Callbacks::prepare(mount::PollSet& set) {
  for (auto& [key, callee] : callees_) {
    callee.courier.prepare(set);
    if (callee.courier.idle()) set.wake_at(callee.used_ns + kIdleCalleeNs);
  }
}

void Callbacks::turn(const mount::PollSet& set, std::uint64_t now_ns) {
  // Whose reply has come may call others, which are not among these.
  std::vector<Callee*> all;
  for (auto& [key, callee] : callees_) all.push_back(&callee);
  in_turn_ = true;
  for (Callee* const callee : all) callee->courier.turn(set, now_ns);
  in_turn_ = false;
  std::erase_if(callees_, [&](const auto& entry) {
    return entry.second.courier.idle() && now_ns >= entry.second.used_ns + kIdleCalleeNs;
  });
}

}  // namespace sluice::locks
