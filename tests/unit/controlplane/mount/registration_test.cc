// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/registration.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "tests/unit/controlplane/mount/mount_lab.h"

namespace sluice::mount {
namespace {

using namespace lab;

/// An rpcbind that remembers what it is told.
class MountRegistration : public testing::Test {
 protected:
  MountRegistration() : path_(testing::TempDir() + "sluice-rpcbind-" + std::to_string(::getpid())) {
    rpcbind_.emplace(path_);
    registrar_.emplace(own_, path_, statistics_);
  }
  static Registration registration(const std::string& netid, const std::string& address) {
    return {.netid = netid, .address = address, .owner = {}};
  }
  /// Answers what has come.
  void serve() {
    rpcbind_->pump();
    for (const auto& call : std::exchange(rpcbind_->calls, {})) {
      if (call.procedure.procedure == kDumpAddresses.procedure) {
        ++dumps_;
        rpcbind_->answer(call, encoded([&](xdr::Writer& writer) {
                           for (const Registration& one : known_) writer.boolean(true), encode(writer, one);
                           writer.boolean(false);
                         }));
        continue;
      }
      xdr::Reader reader(call.arguments);
      Registration one = registration("", "");
      one.program = reader.u32();
      one.version = reader.u32();
      one.netid = reader.string(100);
      one.address = reader.string(100);
      const bool set = call.procedure.procedure == kSetAddress.procedure;
      if (!set) unset_.push_back(one.netid);
      const auto same = [&](const Registration& other) {
        return other.program == one.program && other.netid == one.netid;
      };
      const bool there = std::any_of(known_.begin(), known_.end(), same);
      if (set && !there) known_.push_back(one);
      if (!set && !keeps_all_) std::erase_if(known_, same);
      rpcbind_->answer(
          call, encoded([&](xdr::Writer& writer) { writer.boolean(set != there && (set || !keeps_all_)); }));
    }
  }
  void until(const std::function<bool()>& done) {
    turn_until(*registrar_, now_ns_, [&] { return serve(), done(); });
  }
  void serve_for_a_while() {
    int left = 20;
    until([&] { return left-- == 0; });
  }

  const std::string path_;
  const std::vector<Registration> own_{registration("tcp", "0.0.0.0.78.80"),
                                       registration("udp", "0.0.0.0.78.80")};
  MountStatistics statistics_;
  std::optional<FakeServer> rpcbind_;
  std::optional<Registrar> registrar_;
  std::vector<Registration> known_;
  std::vector<std::string> unset_;
  bool keeps_all_ = false;  ///< it lets nobody withdraw
  int dumps_ = 0;
  std::uint64_t now_ns_ = kStartNs;
};

TEST_F(MountRegistration, what_is_missing_is_registered_and_withdrawn_at_the_end) {
  until([&] { return known_ == own_; });
  serve_for_a_while();
  registrar_->withdraw(now_ns_);
  until([&] { return registrar_->withdrawn(); });
  EXPECT_TRUE(known_.empty());
}

TEST_F(MountRegistration, an_address_of_another_server_stays_from_beginning_to_end) {
  known_ = {registration("tcp", "0.0.0.0.3.232")};
  until([&] { return known_.size() == 2; });
  EXPECT_EQ(known_[0].address, "0.0.0.0.3.232");
  EXPECT_EQ(statistics_.registrations_foreign.load(), 1u);
  serve_for_a_while();
  registrar_->withdraw(now_ns_);
  until([&] { return registrar_->withdrawn(); });
  EXPECT_EQ(unset_, std::vector<std::string>{"udp"});
  EXPECT_EQ(known_, std::vector{registration("tcp", "0.0.0.0.3.232")});
}

TEST_F(MountRegistration, one_that_has_been_replaced_meanwhile_is_not_withdrawn) {
  until([&] { return known_ == own_; });
  serve_for_a_while();
  known_[0].address = "0.0.0.0.3.232";
  registrar_->withdraw(now_ns_);
  until([&] { return registrar_->withdrawn(); });
  EXPECT_EQ(unset_, std::vector<std::string>{"udp"});
}

TEST_F(MountRegistration, other_programs_of_the_same_transport_do_not_matter) {
  Registration other = registration("tcp", "0.0.0.0.8.1");
  other.program = 100003;
  known_ = {other};
  until([&] { return known_.size() == 3; });
  EXPECT_EQ(statistics_.registrations_foreign.load(), 0u);
}

TEST_F(MountRegistration, a_later_rpcbind_one_that_forgets_and_one_that_becomes_free_are_noticed) {
  rpcbind_.reset();
  turns(*registrar_, now_ns_);
  rpcbind_.emplace(path_);
  known_ = {registration("tcp", "0.0.0.0.3.232")};
  now_ns_ += kRegisterAgainNs;
  until([&] { return known_.size() == 2; });
  serve_for_a_while();
  known_.clear();
  now_ns_ += kRegisterAgainNs;
  until([&] { return known_ == own_; });
}

TEST_F(MountRegistration, an_rpcbind_that_does_not_answer_does_not_hold_up_the_end) {
  turns(*registrar_, now_ns_);
  registrar_->withdraw(now_ns_);
  turns(*registrar_, now_ns_ + kWithdrawNs - 1);
  EXPECT_FALSE(registrar_->withdrawn());
  turn_until(*registrar_, now_ns_ + kWithdrawNs, [&] { return registrar_->withdrawn(); });
}

TEST_F(MountRegistration, a_withdrawal_that_rpcbind_refuses_is_not_repeated) {
  keeps_all_ = true;
  until([&] { return known_ == own_; });
  serve_for_a_while();
  registrar_->withdraw(now_ns_);
  until([&] { return registrar_->withdrawn(); });
  EXPECT_EQ(unset_, (std::vector<std::string>{"tcp", "udp"}));
}

TEST_F(MountRegistration, what_is_registered_while_the_end_begins_is_withdrawn) {
  until([&] { return dumps_ == 1; });
  turn_until(*registrar_, now_ns_, [&] { return rpcbind_->pump(), rpcbind_->calls.size() == 2; });
  registrar_->withdraw(now_ns_);
  until([&] { return registrar_->withdrawn(); });
  EXPECT_TRUE(known_.empty());
  EXPECT_EQ(unset_.size(), 2u);
}

TEST_F(MountRegistration, the_end_during_a_registration_withdraws_what_was_registered_by_then) {
  turn_until(*registrar_, now_ns_, [&] { return rpcbind_->pump(), rpcbind_->calls.size() == 1; });
  registrar_->withdraw(now_ns_);
  until([&] { return registrar_->withdrawn(); });
  EXPECT_TRUE(known_.empty());
}

}  // namespace
}  // namespace sluice::mount
