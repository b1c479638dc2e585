// SPDX-License-Identifier: Apache-2.0
//
// The verbs driver over every model of a provider: what a provider cannot do is not requested from it, and
// everything else is equal.
#include <string>
#include <vector>

#include "dataplane/base/setup_error.h"
#include "dataplane/rpcrdma/link/send_stage.h"
#include "pmd/verbs/port_list.h"
#include "tests/driver/verbs_model_fixture.h"

namespace sluice::rdma::conformance {
namespace {

using verbs::Interface;

class EveryModel : public VerbsModel, public testing::WithParamInterface<std::tuple<Provider, Interface>> {
 protected:
  EveryModel() { open(provider(), std::get<Interface>(GetParam())); }
  static const Provider& provider() { return std::get<Provider>(GetParam()); }
};

std::string name_of(const testing::TestParamInfo<std::tuple<Provider, Interface>>& row) {
  constexpr const char* kNames[] = {"newest", "classic", "extended"};
  return std::string(std::get<Provider>(row.param).name) + "_" +
         kNames[static_cast<int>(std::get<Interface>(row.param))];
}

INSTANTIATE_TEST_SUITE_P(, EveryModel,
                         testing::Combine(testing::ValuesIn(kProviders),
                                          testing::Values(Interface::Newest, Interface::Classic,
                                                          Interface::Extended)),
                         name_of);

TEST_P(EveryModel, completes_each_operation_that_its_limits_allow) {
  const auto qp = connected();
  const Sge piece{memory_.bytes.data(), 64, memory_.lkey};
  SendWr wr{.wr_id = 7, .sges = {&piece, 1}};
  for (const SendOpcode opcode :
       {SendOpcode::Send, SendOpcode::RdmaWrite, SendOpcode::RdmaRead, SendOpcode::SendWithImmediate,
        SendOpcode::RdmaWriteWithImmediate, SendOpcode::SendWithInvalidate}) {
    if (opcode == SendOpcode::SendWithInvalidate && !device_->limits().remote_invalidation) continue;
    wr.opcode = opcode;
    wr.rkey = Rkey{0x100};
    EXPECT_EQ(result(*qp, wr), WcStatus::Success) << static_cast<int>(opcode);
  }
  EXPECT_EQ(qp->state(), State::ReadyToSend);
}

TEST_P(EveryModel, reads_into_scattered_memory_byte_by_byte) {
  constexpr std::size_t kPieces = 40;
  constexpr std::uint32_t kBytes = 48;
  constexpr std::uint64_t kRemote = 0x1230;
  const auto qp = connected();
  rpcrdma::SendStage stage;
  stage.set_max_sge(device_->limits().max_send_sge, device_->limits().max_read_sge);
  stage.begin_transfers();
  const auto at = [&](std::size_t i) { return memory_.bytes.data() + i * 3 * kBytes; };
  for (std::size_t i = 0; i < kPieces; ++i)
    ASSERT_TRUE(stage.transfer(SendOpcode::RdmaRead, i,
                               {.handle = Rkey{1}, .length = kBytes, .offset = kRemote + i * kBytes},
                               {at(i), kBytes, memory_.lkey}));
  stage.last().flags = kSignaled;
  ASSERT_EQ(qp->post_send(stage.wrs()), stage.size());
  EXPECT_TRUE(until([&] { return !completions_.empty(); }));
  EXPECT_EQ(qp->state(), State::ReadyToSend);
  for (std::size_t i = 0; i < kPieces; ++i)
    for (std::uint32_t k = 0; k < kBytes; ++k)
      ASSERT_EQ(at(i)[k], VerbsStub::remote_byte(kRemote + i * kBytes + k)) << i;
}

TEST_P(EveryModel, flushes_what_is_outstanding_when_a_queue_pair_ends) {
  const auto qp = connected();
  const RecvWr receive{9, {memory_.bytes.data(), 64, memory_.lkey}};
  ASSERT_EQ(qp->post_recv({&receive, 1}), 1u);
  qp->to_error();
  EXPECT_TRUE(until([&] { return completions_.size() == 1; }));
  EXPECT_EQ(completions_[0].status, WcStatus::WrFlushError);
}

TEST_P(EveryModel, has_the_features_that_its_provider_implements) {
  const bool windows = provider().windows == Provider::Windows::Whole;
  EXPECT_EQ(device_->limits().max_windows > 0, windows);
  EXPECT_EQ(device_->limits().remote_invalidation,
            provider().invalidation == Provider::Invalidation::Whole &&
                (windows || (provider().flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0));
  const auto ports = verbs::list_ports();
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].windows, windows);
  EXPECT_EQ(ports[0].remote_invalidation, device_->limits().remote_invalidation);
  if (windows) return void(device_->allocate_window());
  try {
    device_->allocate_window();
    ADD_FAILURE() << "the provider has no windows";
  } catch (const SetupError& error) {
    EXPECT_NE(std::string(error.what()).find("no type 2 memory windows"), std::string::npos) << error.what();
  }
}

// --- Limits and diagnosis

class ReportedLimits : public VerbsModel {};

TEST_F(ReportedLimits, of_a_completion_queue_that_the_provider_refuses_are_halved) {
  Provider provider = model("irdma");
  provider.max_completions = 1 << 10;  // fewer than all queue pairs need, so that the limit is requested
  open(provider);
  device_->prepare_queue_pairs(kModelLimits, 4);
  EXPECT_TRUE(has_notice("refused a completion queue of 1024 entries and has one of 512"));
  EXPECT_EQ(connected()->state(), State::ReadyToSend);
}

TEST_F(ReportedLimits, of_a_completion_queue_are_approached_from_below) {
  constexpr std::uint32_t kTaken = 800;
  Provider provider = kFullProvider;
  provider.max_completions = 1 << 10;
  provider.completions_taken = kTaken;
  open(provider);
  device_->prepare_queue_pairs(kModelLimits, 4);
  std::string said;
  while (device_->take_notice(said) && said.find("refused a completion queue") == std::string::npos) {
  }
  const std::size_t at = said.find("has one of ");
  ASSERT_NE(at, std::string::npos) << said;
  const int entries = std::stoi(said.substr(at + 11));
  EXPECT_LE(entries, static_cast<int>(kTaken));
  EXPECT_GE(entries, static_cast<int>(kTaken - kTaken / 16));
}

TEST_F(ReportedLimits, of_a_completion_queue_may_be_what_one_queue_pair_needs) {
  Provider provider = kFullProvider;
  provider.max_completions = 1 << 10;
  provider.completions_taken = kModelLimits.send_depth + kModelLimits.recv_depth;
  open(provider);
  EXPECT_EQ(connected()->state(), State::ReadyToSend);
}

TEST_F(ReportedLimits, that_are_probed_are_in_the_log) {
  open(model("mana"));
  EXPECT_TRUE(has_notice(
      "stub0/1 of provider mana has memory windows: no (probed), Send with Invalidate: no (probed)"));
}

TEST_F(ReportedLimits, are_by_flags_if_nothing_can_be_probed) {
  stub_.refuse_queue_pairs(true);
  open(kFullProvider);
  EXPECT_GT(device_->limits().max_windows, 0u);
  EXPECT_TRUE(has_notice("memory windows: yes (by its flags), Send with Invalidate: yes (by its flags)"));
  open(model("irdma"));
  EXPECT_EQ(device_->limits().max_windows, 0u);
  stub_.refuse_queue_pairs(false);
}

TEST_F(ReportedLimits, do_not_hide_the_reason_of_an_error) {
  for (const Interface interface : {Interface::Classic, Interface::Extended}) {
    open(kFullProvider, interface);
    static_cast<void>(has_notice("none of these"));
    const auto qp = connected();
    stub_.lose_peer();
    const SendWr send{.wr_id = 1, .sges = {}, .flags = kSignaled};
    ASSERT_EQ(qp->post_send({&send, 1}), 1u);
    stub_.give_up();
    EXPECT_TRUE(until([&] { return qp->state() == State::Error; }));
    EXPECT_TRUE(has_notice("(status 12, vendor error 82). Its connection ends"));
    stub_.find_peer();
  }
}

// --- Posted RDMA Reads

class PostedReads : public VerbsModel {
 protected:
  PostedReads() { open(model("mana")); }
  /// Posts RDMA Reads with Sends among them.
  void post(QueuePair& qp, std::size_t from, std::size_t count) {
    for (std::size_t i = from; i < from + count; ++i) {
      const Sge piece{memory_.bytes.data() + i * 16, 16, memory_.lkey};
      const SendWr wr{.wr_id = i,
                      .sges = {&piece, 1},
                      .remote_address = 16 * i,
                      .opcode = i % 10 == 9 ? SendOpcode::Send : SendOpcode::RdmaRead,
                      .flags = static_cast<std::uint8_t>(i % 50 == 49 ? kSignaled : 0)};
      ASSERT_EQ(qp.post_send({&wr, 1}), 1u) << i;
    }
  }
};

TEST_F(PostedReads, are_as_many_as_the_provider_has_room_for) {
  constexpr std::size_t kAll = 400;
  const auto qp = connected({.send_depth = 512, .recv_depth = 8});
  const std::size_t before = stub_.posted().size();
  stub_.lose_peer();
  post(*qp, 0, kAll);
  for (int i = 0; i < 10; ++i) turn();
  EXPECT_EQ(qp->state(), State::ReadyToSend) << "the provider refused an RDMA Read";
  EXPECT_LT(stub_.posted().size() - before, kAll);
  while (completions_.size() < kAll / 50 && qp->state() == State::ReadyToSend) {
    stub_.find_peer();
    turn();
  }
  ASSERT_EQ(stub_.posted().size() - before, kAll);
  for (std::size_t i = 0; i < kAll; ++i)
    EXPECT_EQ(stub_.posted()[before + i].opcode, i % 10 == 9 ? IBV_WR_SEND : IBV_WR_RDMA_READ) << i;
  for (std::size_t i = 0; i < completions_.size(); ++i) EXPECT_EQ(completions_[i].wr_id, 50 * i + 49);
}

TEST_F(PostedReads, that_were_held_are_flushed_with_the_others) {
  const auto qp = connected({.send_depth = 512, .recv_depth = 8});
  stub_.lose_peer();
  post(*qp, 0, 400);
  stub_.give_up();
  EXPECT_TRUE(until([&] { return qp->state() == State::Error && completions_.size() == 400; }));
  for (std::size_t i = 0; i < completions_.size(); ++i) EXPECT_EQ(completions_[i].wr_id, i);
}

// --- The posting interface

class PostingInterface : public VerbsModel {};

TEST_F(PostingInterface, is_extended_only_where_the_provider_was_read) {
  for (const Provider& provider : kProviders) {
    open(provider);
    const auto qp = connected();
    EXPECT_EQ(device_->has_extended_posting(), provider.name == "mlx5") << provider.name;
    EXPECT_EQ(device_->has_extended_polling(), provider.name.starts_with("mlx")) << provider.name;
  }
}

TEST_F(PostingInterface, is_classic_if_a_function_of_the_extended_one_is_null) {
  open(model("bnxt_re_56"), Interface::Extended);
  const auto qp = connected();
  EXPECT_FALSE(device_->has_extended_posting());
}

TEST_F(PostingInterface, is_classic_if_the_provider_cannot_be_known) {
  stub_.hide_sysfs(true);
  open(model("bnxt_re_56"));
  const auto qp = connected();
  EXPECT_FALSE(device_->has_extended_posting());
  EXPECT_FALSE(device_->has_extended_polling());
  stub_.hide_sysfs(false);
}

}  // namespace
}  // namespace sluice::rdma::conformance
