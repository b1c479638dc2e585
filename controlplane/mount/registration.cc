// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/registration.h"

#include <spdlog/spdlog.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace sluice::mount {
namespace {

Server unix_server(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  Server server;
  std::memcpy(&server.address, &address, sizeof address);
  server.address_bytes = sizeof address;
  return server;
}

const Registration* find(const std::vector<Registration>& known, const Registration& own) {
  const auto at = std::find_if(known.begin(), known.end(), [&](const Registration& one) {
    return one.program == own.program && one.version == own.version && one.netid == own.netid;
  });
  return at == known.end() ? nullptr : &*at;
}

}  // namespace

Registrar::Registrar(std::vector<Registration> own, const std::string& socket_path,
                     MountStatistics& statistics, ServiceName service)
    : own_(std::move(own)), statistics_(statistics), service_(std::move(service)) {
  rpcbind_.set_server(unix_server(socket_path));
}

void Registrar::prepare(PollSet& set) {
  rpcbind_.prepare(set);
  if (state_ == State::Resting) set.wake_at(next_ns_);
  if (state_ == State::Withdrawing) set.wake_at(deadline_ns_);
}

void Registrar::turn(const PollSet& set, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  rpcbind_.turn(set, now_ns);
  if (state_ == State::Resting && now_ns >= next_ns_) {
    state_ = State::Asking;
    ask(now_ns);
  } else if (state_ == State::Withdrawing && now_ns >= deadline_ns_) {
    state_ = State::Gone;
  }
}

void Registrar::withdraw(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  deadline_ns_ = now_ns + kWithdrawNs;
  const bool asking = state_ == State::Asking;
  state_ = State::Withdrawing;
  if (!asking) ask(now_ns);
}

void Registrar::ask(std::uint64_t now_ns) {
  rpcbind_.call(kDumpAddresses, {}, false, now_ns, now_ns + kRegistrationNs,
                [this](Failure failure, xdr::Reader results) { found(failure, results); });
}

void Registrar::found(Failure failure, xdr::Reader results) {
  const auto known = failure == Failure::None ? decode_registrations(results) : std::nullopt;
  if (!known) {
    if (state_ == State::Withdrawing)
      state_ = State::Gone;
    else
      settle(Outcome::NoRpcbind);
    return;
  }
  if (state_ == State::Withdrawing)
    remove_own(*known);
  else
    register_missing(*known);
}

void Registrar::register_missing(const std::vector<Registration>& known) {
  refused_ = false;
  foreign_.clear();
  for (const Registration& own : own_) {
    const Registration* other = find(known, own);
    if (other == nullptr) {
      call(kSetAddress, own);
    } else if (other->address != own.address) {
      foreign_ += (foreign_.empty() ? "" : ", ") + other->netid + ' ' + other->address;
      if (outcome_ != Outcome::Foreign) count(statistics_.registrations_foreign);
    }
  }
  if (calls_ == 0) called(true);
}

void Registrar::remove_own(const std::vector<Registration>& known) {
  removing_ = true;
  for (const Registration& own : own_) {
    const Registration* registered = find(known, own);
    if (registered != nullptr && registered->address == own.address) call(kUnsetAddress, own);
  }
  if (calls_ == 0) state_ = State::Gone;
}

void Registrar::call(const Procedure& procedure, const Registration& registration) {
  std::array<std::byte, 512> room;
  xdr::Writer arguments(room);
  encode(arguments, registration);
  ++calls_;
  rpcbind_.call(procedure, arguments.written(), false, now_ns_, now_ns_ + kRegistrationNs,
                [this](Failure failure, xdr::Reader results) {
                  --calls_;
                  called(failure == Failure::None && results.boolean());
                });
}

/// The last answer of rpcbind ends the round.
void Registrar::called(bool accepted) {
  refused_ |= !accepted;
  if (calls_ > 0) return;
  if (state_ == State::Asking)
    settle(!foreign_.empty() || refused_ ? Outcome::Foreign : Outcome::Registered);
  else if (removing_)
    state_ = State::Gone;
  else
    ask(now_ns_);  // the withdrawal began while we were registering
}

void Registrar::settle(Outcome outcome) {
  state_ = State::Resting;
  next_ns_ = now_ns_ + kRegisterAgainNs;
  if (std::exchange(outcome_, outcome) == outcome) return;
  if (outcome == Outcome::Registered)
    spdlog::info("{} is registered with rpcbind", service_.name);
  else if (outcome == Outcome::NoRpcbind)
    spdlog::info("{} is not registered: no rpcbind answers on this host", service_.name);
  else if (!foreign_.empty())
    spdlog::warn("rpcbind has another {} server ({}), which stays registered: {}", service_.name, foreign_,
                 service_.if_other);
  else
    spdlog::warn("rpcbind refuses to register {}", service_.name);
}

}  // namespace sluice::mount
