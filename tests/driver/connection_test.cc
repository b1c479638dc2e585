// SPDX-License-Identifier: Apache-2.0
//
// The rules of pmd/connection_manager.h, for any driver: either its own connection manager, or the manager
// that programs without a control plane use with it. This file is compiled once, and a file for each driver
// instantiates the tests.
#include "tests/driver/connection_fixture.h"

namespace sluice::rdma::conformance {
namespace {

TEST_P(ConnectionTest, a_request_names_its_port_and_brings_private_data) {
  request();
  EXPECT_EQ(right_->event(CmEventType::ConnectRequest).port, kPort);
  expect_data(right_->event(CmEventType::ConnectRequest), kHello);
}

TEST_P(ConnectionTest, a_refusal_brings_private_data_and_comes_once) {
  request();
  ASSERT_TRUE(until([&] {
    right_->manager.reject(*right_->id, kNo);  // repeated when the request is repeated
    return left_->count(CmEventType::Rejected) > 0;
  }));
  expect_data(left_->event(CmEventType::Rejected), kNo);
  quiesce();
  EXPECT_EQ(left_->count(CmEventType::Rejected), 1u);
  EXPECT_EQ(left_->events.size(), 1u);
  right_->manager.reject(*right_->id, kNo);
  EXPECT_FALSE(right_->manager.accept(*right_->id, *right_->qp, kYes));
}

TEST_P(ConnectionTest, nobody_who_listens_is_a_refusal) {
  ask(kPort + 1);
  EXPECT_TRUE(until([&] { return left_->count(CmEventType::Rejected) > 0; }));
}

TEST_P(ConnectionTest, a_queue_pair_that_has_ended_meanwhile_is_a_refusal_and_the_peer_is_told) {
  request();
  left_->qp->to_error();
  ASSERT_TRUE(right_->manager.accept(*right_->id, *right_->qp, kYes));
  EXPECT_TRUE(until([&] {
    return left_->count(CmEventType::Rejected) == 1 && right_->count(CmEventType::Disconnected) == 1;
  }));
  EXPECT_EQ(left_->events.size(), 1u);
}

TEST_P(ConnectionTest, both_ends_learn_that_it_is_established_and_can_send) {
  establish();
  expect_data(left_->event(CmEventType::Established), kYes);
  EXPECT_EQ(left_->qp->state(), QueuePair::State::ReadyToSend);
  EXPECT_EQ(right_->qp->state(), QueuePair::State::ReadyToSend);
  quiesce();
  EXPECT_EQ(left_->count(CmEventType::Established), 1u);
  EXPECT_EQ(right_->count(CmEventType::Established), 1u);
}

TEST_P(ConnectionTest, whoever_disconnects_both_learn_it_once_and_the_peers_queue_pair_ends) {
  for (std::optional<ManagedEnd>* const who : {&left_, &right_}) {
    establish();
    ManagedEnd& peer = who == &left_ ? *right_ : *left_;
    (*who)->manager.disconnect(*(*who)->id);
    EXPECT_TRUE(until([&] {
      return (*who)->count(CmEventType::Disconnected) > 0 && peer.count(CmEventType::Disconnected) > 0 &&
             peer.qp->state() == QueuePair::State::Error;
    })) << (who == &left_);
    for (ManagedEnd* const end : {&*left_, &*right_}) end->manager.disconnect(*end->id);
    quiesce();
    EXPECT_EQ(left_->count(CmEventType::Disconnected), 1u);
    EXPECT_EQ(right_->count(CmEventType::Disconnected), 1u);
    renew();
  }
}

TEST_P(ConnectionTest, a_queue_pair_may_be_gone_before_its_connection_is_ended) {
  for (std::optional<ManagedEnd>* const who : {&left_, &right_}) {
    establish();
    ManagedEnd& peer = who == &left_ ? *right_ : *left_;
    (*who)->qp.reset();
    (*who)->manager.disconnect(*(*who)->id);
    EXPECT_TRUE(until([&] {
      return peer.count(CmEventType::Disconnected) == 1 && peer.qp->state() == QueuePair::State::Error;
    })) << (who == &left_);
    peer.manager.disconnect(*peer.id);
    renew();
  }
}

}  // namespace
}  // namespace sluice::rdma::conformance
