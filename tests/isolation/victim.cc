// SPDX-License-Identifier: Apache-2.0
#include "tests/isolation/victim.h"

#include <algorithm>

#include "dataplane/ulb/nfs3.h"
#include "tests/conformance/v2_lab.h"

namespace sluice::isolation {

using conformance::RawCall;
using conformance::test_call;
using conformance::word_at;
namespace v2 = conformance::v2;

namespace {

constexpr std::uint32_t kMegabyte = 1u << 20;
constexpr std::uint32_t kVictimListBytes = 8192;
constexpr std::uint64_t kMostTurns = 5000;  ///< after which the client gives a call up

}  // namespace

Victim::Victim(Site& site, std::uint32_t version)
    : site_(site), version_(version), peer_(site.make_peer("victim", 64)) {
  site.expect_victim(true);
  peer_->connect();
  for (std::uint64_t i = 0; i < kMostTurns && !peer_->connected(); ++i) turn();
  site.expect_victim(false);
  if (version == 2)
    peer_->raw().send(v2::Header{.xid = 1, .credit = 0x00400040, .type = v2::kConnProp}.then({0}));
  for (int i = 0; i < 20; ++i) turn();
}

void Victim::turn() {
  const std::uint64_t begin_ns = clock_ns();
  site_.turn();
  peer_->poll();
  served_ns_ += clock_ns() - begin_ns;
  if (others_ != nullptr) others_->turn();
}

std::uint64_t Victim::run(Operation operation, Attackers* others) {
  others_ = others;
  const std::uint64_t begin = site_.turns();
  peer_->raw().inbox.clear();
  ++xid_;
  switch (operation) {
    case Operation::Null:
      EXPECT_TRUE(succeeds(ask({}, {}, {}, test_call(xid_, TestService::kNull))));
      break;
    case Operation::GetAttr:
      get_attr();
      break;
    case Operation::List:
      list();
      break;
    case Operation::Read:
      read();
      break;
    case Operation::Write:
      write();
      break;
    case Operation::Authenticate:
      authenticate();
      break;
  }
  return site_.turns() - begin;
}

Bytes Victim::ask(const std::vector<conformance::RawRead>& reads, const std::vector<Segments>& writes,
                  const std::optional<Segments>& reply, const Bytes& payload) {
  if (version_ == 1)
    peer_->raw().send(RawCall{.xid = xid_, .reads = reads, .writes = writes, .reply = reply}.with(payload));
  else
    peer_->raw().send(
        v2::Header{.xid = xid_, .credit = 0x00400010, .reads = reads, .writes = writes, .reply = reply}.with(
            payload));
  const std::uint64_t begin = site_.turns();
  while (site_.turns() - begin < kMostTurns && !lost()) {
    turn();
    for (const conformance::Received& received : peer_->raw().inbox)
      if (word_at(received.bytes, 0) == xid_) return received.bytes;
  }
  return {};
}

/// True for a successful reply without chunks in its header.
bool Victim::succeeds(const Bytes& answer) const {
  return version_ == 1 ? conformance::accept_stat(answer) == 0 : v2::is_success(answer, xid_);
}

/// Calls GETATTR of NFS version 3 for the root of the export.
void Victim::get_attr() {
  constexpr std::uint32_t kDirectory = 2;
  const auto root = site_.files().root_handle(0);
  Bytes call = conformance::rpc_call(xid_, ulb::kNfsProgram, ulb::kNfs3Version, ulb::kNfs3GetAttr);
  conformance::append(call, conformance::words({static_cast<std::uint32_t>(root.size())}));
  call.insert(call.end(), root.begin(), root.end());
  const Bytes answer = ask({}, {}, {}, call);
  ASSERT_TRUE(succeeds(answer));
  const std::size_t results_at = (version_ == 1 ? 7 : 9) + 6;  // the headers, in words
  ASSERT_GE(answer.size(), (results_at + 2) * xdr::kUnit);
  EXPECT_EQ(word_at(answer, results_at), 0u);
  EXPECT_EQ(word_at(answer, results_at + 1), kDirectory);
}

void Victim::list() {
  const auto memory = peer_->raw().expose(kVictimListBytes + 1024, rdma::kRemoteWrite);
  const Bytes answer =
      ask({}, {}, Segments{memory.segment}, test_call(xid_, TestService::kList, {kVictimListBytes}));
  ASSERT_FALSE(answer.empty());
  // The RPC reply is in the Reply chunk: 24 bytes of header, a count word, the data.
  EXPECT_EQ(word_at(memory.bytes, 0), xid_);
  EXPECT_TRUE(conformance::has_pattern(memory.bytes.subspan(28, kVictimListBytes), 1));
}

void Victim::read() {
  const auto memory = peer_->raw().expose(kMegabyte, rdma::kRemoteWrite);
  const Bytes answer = ask({}, {{memory.segment}}, {}, test_call(xid_, TestService::kSource, {kMegabyte}));
  ASSERT_FALSE(answer.empty());
  EXPECT_TRUE(conformance::has_pattern(memory.bytes, 1));
}

void Victim::write() {
  const auto memory = peer_->raw().expose(kMegabyte, rdma::kRemoteRead);
  conformance::fill_pattern(memory.bytes, xid_);
  constexpr std::uint32_t kPosition = 44;
  const Bytes answer = ask({{.position = kPosition, .segment = memory.segment}}, {}, {},
                           test_call(xid_, TestService::kSink, {kMegabyte}));
  ASSERT_TRUE(succeeds(answer));
  EXPECT_TRUE(conformance::has_pattern(site_.service().last_data, xid_));
}

/// Has the server send host authentication, which arrives in properties of version 2.
void Victim::authenticate() {
  if (version_ == 1) return;
  ASSERT_TRUE(site_.victim()->send_host_authentication(Bytes(64)));
  const auto has_come = [this] {
    return std::any_of(peer_->raw().inbox.begin(), peer_->raw().inbox.end(),
                       [](const auto& received) { return word_at(received.bytes, 3) == v2::kConnProp; });
  };
  const std::uint64_t begin = site_.turns();
  while (site_.turns() - begin < kMostTurns && !lost() && !has_come()) turn();
  EXPECT_TRUE(has_come());
}

}  // namespace sluice::isolation
