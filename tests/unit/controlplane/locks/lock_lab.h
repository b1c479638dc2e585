// SPDX-License-Identifier: Apache-2.0
//
// Shared by tests of the lock proxy: its service between an upstream and clients that the test controls.
// rpcgen's code (nlm4.x) encodes and decodes their messages.
#pragma once

#include <gtest/gtest.h>
#include <rpc/rpc.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/locks/lock_service.h"
#include "nlm4.h"
#include "tests/unit/controlplane/onc_rpc/rpc_lab.h"

namespace sluice::locks::lab {

using namespace onc_rpc::lab;
using Call = FakeServer::Call;

inline lk_obj obj(const std::string& text) {
  return {static_cast<u_int>(text.size()), const_cast<char*>(text.data())};
}
inline std::string text(const lk_obj& object) {
  return {object.lk_obj_val, object.lk_obj_len};
}

template <typename T>
Bytes encode_by_rpcgen(bool_t (*function)(XDR*, T*), T value) {
  Bytes room(8192);
  XDR xdrs;
  xdrmem_create(&xdrs, reinterpret_cast<char*>(room.data()), static_cast<u_int>(room.size()), XDR_ENCODE);
  EXPECT_TRUE(function(&xdrs, &value));
  room.resize(xdr_getpos(&xdrs));
  return room;
}

/// A value decoded from all of `bytes`, which is freed with the object.
template <typename T>
class Decoded {
 public:
  Decoded(bool_t (*function)(XDR*, T*), const Bytes& bytes) : function_(function) {
    XDR xdrs;
    xdrmem_create(&xdrs, const_cast<char*>(reinterpret_cast<const char*>(bytes.data())),
                  static_cast<u_int>(bytes.size()), XDR_DECODE);
    EXPECT_TRUE(function(&xdrs, &value_));
    EXPECT_EQ(xdr_getpos(&xdrs), bytes.size());
  }
  ~Decoded() {
    xdr_free(reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(function_)),
             reinterpret_cast<char*>(&value_));
  }
  Decoded(const Decoded&) = delete;
  Decoded& operator=(const Decoded&) = delete;
  const T* operator->() const { return &value_; }

 private:
  bool_t (*function_)(XDR*, T*);
  T value_{};
};

/// A lock request of a client's process.
struct Want {
  std::string owner = "77@client";
  std::uint32_t svid = 77;
  std::string handle = "handle-1";
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  bool block = false;
  bool exclusive = true;
  bool reclaim = false;
  std::string cookie = "cook";
  std::string caller = "client";
  int state = 3;
};

inline lk_lock lock_of(const Want& want) {
  return {const_cast<char*>(want.caller.c_str()),
          obj(want.handle),
          obj(want.owner),
          want.svid,
          want.offset,
          want.length};
}
inline Bytes lock_arguments(const Want& want) {
  return encode_by_rpcgen<lk_lockargs>(&xdr_lk_lockargs, {obj(want.cookie), want.block, want.exclusive,
                                                          lock_of(want), want.reclaim, want.state});
}
inline Bytes cancel_arguments(const Want& want) {
  return encode_by_rpcgen<lk_cancargs>(&xdr_lk_cancargs,
                                       {obj(want.cookie), want.block, want.exclusive, lock_of(want)});
}
inline Bytes test_arguments(const Want& want) {
  return encode_by_rpcgen<lk_testargs>(&xdr_lk_testargs, {obj(want.cookie), want.exclusive, lock_of(want)});
}
inline Bytes unlock_arguments(const Want& want) {
  return encode_by_rpcgen<lk_unlockargs>(&xdr_lk_unlockargs, {obj(want.cookie), lock_of(want)});
}
inline Bytes result(lk_stat stat, const std::string& cookie = "up") {
  return encode_by_rpcgen<lk_res>(&xdr_lk_res, {obj(cookie), stat});
}
inline Bytes notice(const std::string& name, int state) {
  return encode_by_rpcgen<lk_notify>(&xdr_lk_notify, {const_cast<char*>(name.c_str()), state});
}

constexpr onc_rpc::Procedure nlm(std::uint32_t procedure) {
  return {100021, 4, procedure};
}
constexpr onc_rpc::Procedure kNotify{100024, 1, 6};

/// A host at 127.0.0.`last`: its rpcbind, its lock manager and status monitor on one port, and its connection
/// to the gateway.
struct Machine {
  Machine(std::uint8_t last, std::uint16_t port)
      : last_(last), server(PeerAddress::from_ipv4(127, 0, 0, last), port) {}
  /// A host at another address. It has no connection to the gateway.
  Machine(const PeerAddress& at, std::uint16_t port) : last_(0), server(at, port) {}

  /// Answers calls of rpcbind; calls of NLM and NSM remain in `server.calls`.
  void pump() {
    server.pump();
    std::erase_if(server.calls, [&](const Call& call) {
      if (call.procedure.program != onc_rpc::kRpcbindProgram) return false;
      ++asked_for_port;
      server.answer(call, encoded([&](xdr::Writer& writer) {
                      if (call.procedure.version == onc_rpc::kGetPort.version)
                        writer.u32(registered ? server.port() : 0u);
                      else
                        writer.string(registered ? universal_address(server.peer(), server.port()) : "");
                    }));
      return true;
    });
  }

  const std::uint8_t last_;
  FakeServer server;
  bool registered = true;
  int asked_for_port = 0;
  std::unique_ptr<Stream> stream;
  std::uint32_t xid = 100;
};

class Locks : public testing::Test {
 protected:
  static constexpr std::uint8_t kUpstreamLast = 9;

  Locks() {
    upstream_ = std::make_unique<Machine>(kUpstreamLast, std::uint16_t{0});
    settings_.may_lock = [](const PeerAddress& address) {
      return address != PeerAddress::from_ipv4(127, 0, 0, 66);
    };
    settings_.proxy.upstream = "nas";
    settings_.proxy.name = "gateway";
    settings_.proxy.upstream_names = {"nas", "filer.example.com"};
    settings_.proxy.privileged_port = false;
    settings_.proxy.where = [] { return PeerAddress::from_ipv4(127, 0, 0, kUpstreamLast); };
    settings_.proxy.is_upstream = [](const PeerAddress& address) {
      return address == PeerAddress::from_ipv4(127, 0, 0, kUpstreamLast);
    };
    settings_.proxy.upstream_rpcbind = upstream_->server.port();
    settings_.proxy.client_rpcbind = upstream_->server.port();
    settings_.proxy.first_id = 5000;
    settings_.proxy.first_state = 11;
  }
  void start() {
    if (!service_) service_.emplace(settings_, statistics_);
  }
  /// Returns the host at 127.0.0.`last`. The upstream's is 9.
  Machine& machine(std::uint8_t last) {
    if (last == kUpstreamLast) return *upstream_;
    auto& known = machines_[last];
    if (!known) known = std::make_unique<Machine>(last, upstream_->server.port());
    return *known;
  }
  void until(const std::function<bool()>& done) {
    start();
    onc_rpc::lab::turn_until(*service_, now_ns_, [&] {
      upstream_->pump();
      for (auto& [last, machine] : machines_) machine->pump();
      return done();
    });
  }
  void turns(int count = 20) {
    until([&] { return count-- == 0; });
  }
  /// Sends a call without waiting for the reply. Returns its XID.
  std::uint32_t send(Machine& from, const onc_rpc::Procedure& procedure, const Bytes& arguments,
                     std::uint32_t xid = 0) {
    start();
    if (!from.stream) from.stream = connect_to(service_->port(), from.last_);
    if (xid == 0) xid = ++from.xid;
    from.stream->send(record(onc_rpc::lab::call_message(xid, procedure, arguments)));
    return xid;
  }
  /// Returns the results of the next reply, and checks that it answers this call.
  Bytes reply(Machine& to, std::uint32_t xid, rpc::AcceptStat stat = rpc::AcceptStat::Success) {
    std::optional<Bytes> message;
    until([&] {
      to.stream->receive();
      return (message = to.stream->next()).has_value();
    });
    if (!message) return {};
    xdr::Reader reader(*message);
    const auto decoded = rpc::decode_reply(reader);
    EXPECT_TRUE(decoded.ok);
    EXPECT_EQ(decoded.header.accept, stat);
    EXPECT_EQ(static_cast<std::uint32_t>(decoded.header.xid), xid);
    return {reader.rest().begin(), reader.rest().end()};
  }
  /// Returns the next call that the host receives.
  Call next_call(Machine& at) {
    until([&] { return !at.server.calls.empty(); });
    if (at.server.calls.empty()) return {};
    const Call call = at.server.calls.front();
    at.server.calls.erase(at.server.calls.begin());
    return call;
  }
  /// Sends a client's call, which the upstream answers with `stat`. Returns the call that the upstream
  /// received.
  Call settled(Machine& from, std::uint32_t procedure, const Bytes& arguments, lk_stat stat) {
    const std::uint32_t xid = send(from, nlm(procedure), arguments);
    const Call call = next_call(*upstream_);
    EXPECT_EQ(call.procedure.procedure, procedure);
    upstream_->server.answer(call, result(stat));
    const Bytes results = reply(from, xid);
    const Decoded<lk_res> answer(&xdr_lk_res, results);
    EXPECT_EQ(answer->stat, stat);
    EXPECT_EQ(text(answer->cookie), "cook") << "the client's own";
    return call;
  }
  /// Acquires a lock. Returns its svid at the upstream.
  std::uint32_t locked(Machine& from, const Want& want) {
    const Call call = settled(from, 2, lock_arguments(want), LK_GRANTED);
    return Decoded<lk_lockargs>(&xdr_lk_lockargs, call.arguments)->alock.svid;
  }
  /// Requests a lock that is in use. Returns the call that the upstream received.
  Call blocked(Machine& from, Want want) {
    want.block = true;
    return settled(from, 2, lock_arguments(want), LK_BLOCKED);
  }
  /// Sends GRANTED or GRANTED_MSG for this lock as the upstream does. Returns the XID.
  std::uint32_t grant(const Call& lock, std::uint32_t procedure = 5, std::uint8_t from = kUpstreamLast) {
    const Decoded<lk_lockargs> args(&xdr_lk_lockargs, lock.arguments);
    Want want{.owner = text(args->alock.oh),
              .svid = args->alock.svid,
              .handle = text(args->alock.fh),
              .offset = args->alock.l_offset,
              .length = args->alock.l_len,
              .exclusive = args->exclusive != 0,
              .cookie = "of the upstream",
              .caller = "nas"};
    return send(machine(from), nlm(procedure), test_arguments(want));
  }
  static std::uint64_t value(const std::atomic<std::uint64_t>& counter) { return counter.load(); }

  LockStatistics statistics_;
  LockSettings settings_;
  std::unique_ptr<Machine> upstream_;
  std::map<std::uint8_t, std::unique_ptr<Machine>> machines_;
  std::optional<LockService> service_;
  std::uint64_t now_ns_ = kStartNs;
};

}  // namespace sluice::locks::lab
