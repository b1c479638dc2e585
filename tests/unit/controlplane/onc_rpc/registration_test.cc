// SPDX-License-Identifier: Apache-2.0
#include "controlplane/onc_rpc/registration.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "controlplane/events/journal.h"
#include "controlplane/mount/mount_service.h"
#include "tests/unit/controlplane/mount/mount_lab.h"

namespace sluice::onc_rpc {
namespace {

using namespace mount;
using namespace mount::lab;

const ServiceName kService{.name = "MOUNT", .if_other = "Remove it."};

/// An rpcbind that stores its registrations.
class MountRegistration : public testing::Test {
 protected:
  MountRegistration() : path_(testing::TempDir() + "sluice-rpcbind-" + std::to_string(::getpid())) {
    rpcbind_.emplace(path_);
    registrar_.emplace(own_, path_, statistics_.sockets, kService);
  }
  static Registration registration(const std::string& netid, const std::string& address) {
    return {
        .program = kMountProgram, .version = kMountVersion, .netid = netid, .address = address, .owner = {}};
  }
  /// Answers all calls that have arrived.
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
        return other.program == one.program && other.version == one.version && other.netid == one.netid;
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
  /// Replaces the registrar by one whose addresses are served while `served_` is true.
  void register_while_served(bool served) {
    served_ = served;
    registrar_.emplace(own_, path_, statistics_.sockets, kService, [this] { return served_; });
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
  bool served_ = true;
  bool keeps_all_ = false;  ///< refuses every withdrawal
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
  EXPECT_EQ(statistics_.sockets.registrations_foreign.load(), 1u);
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
  EXPECT_EQ(statistics_.sockets.registrations_foreign.load(), 0u);
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

TEST_F(MountRegistration, what_another_process_serves_is_registered_while_it_does) {
  register_while_served(false);
  serve_for_a_while();
  EXPECT_EQ(dumps_, 0);
  served_ = true;
  until([&] { return known_ == own_; });
  serve_for_a_while();
  served_ = false;
  until([&] { return known_.empty(); });
  serve_for_a_while();
  served_ = true;
  until([&] { return known_ == own_; });
  serve_for_a_while();
  registrar_->withdraw(now_ns_);
  until([&] { return registrar_->withdrawn(); });
  EXPECT_TRUE(known_.empty());
}

TEST_F(MountRegistration, what_was_never_served_is_not_withdrawn) {
  known_ = own_;  // registered by another server, which has the port now
  register_while_served(false);
  serve_for_a_while();
  registrar_->withdraw(now_ns_);
  EXPECT_TRUE(registrar_->withdrawn());
  EXPECT_EQ(known_, own_);
}

TEST_F(MountRegistration, the_end_while_it_is_withdrawn_comes_with_that) {
  register_while_served(true);
  until([&] { return known_ == own_; });
  serve_for_a_while();
  served_ = false;
  turn_until(*registrar_, now_ns_, [&] { return rpcbind_->pump(), rpcbind_->calls.size() == 1; });
  registrar_->withdraw(now_ns_);
  until([&] { return registrar_->withdrawn(); });
  EXPECT_TRUE(known_.empty());
}

class NoExports final : public Exports {
  void mount(const std::string&, const Asker&, OnMount) override {}
  void list(const Asker&, OnList) override {}
};

TEST_F(MountRegistration, nfs_of_the_reverse_gateway_is_registered_beside_mount) {
  events::Journal journal([](const events::Event&) {});
  MountService service(0, path_, std::make_unique<NoExports>(), statistics_, journal,
                       NfsListener{.address = {}, .port = 2049, .serves = [] { return true; }});
  const auto has = [&](std::uint32_t program, std::uint32_t version, const std::string& netid,
                       const std::string& address) {
    return std::any_of(known_.begin(), known_.end(), [&](const Registration& one) {
      return one.program == program && one.version == version && one.netid == netid &&
             (address.empty() || one.address == address);
    });
  };
  turn_until(service, now_ns_, [&] {
    serve();
    return has(100005, 3, "tcp", "") && has(100003, 3, "tcp", "0.0.0.0.8.1") &&
           has(100003, 4, "tcp", "0.0.0.0.8.1");
  });
  EXPECT_FALSE(has(100003, 3, "udp", "")) << "it is not served";
  turn_until(service, now_ns_, [&, left = 20]() mutable { return serve(), left-- == 0; });
  service.finish(now_ns_);
  turn_until(service, now_ns_, [&] { return serve(), service.finished(); });
  EXPECT_TRUE(known_.empty());
}

TEST(NfsRegistrations, are_of_the_families_at_which_it_listens) {
  const auto shown = [](const PeerAddress& address, bool six) {
    std::string text;
    for (const Registration& one : registrations_of({.address = address, .port = 2049, .serves = {}}, six))
      text += std::to_string(one.version) + ' ' + one.netid + ' ' + one.address + '\n';
    return text;
  };
  EXPECT_EQ(shown({}, true), "3 tcp 0.0.0.0.8.1\n3 tcp6 ::.8.1\n4 tcp 0.0.0.0.8.1\n4 tcp6 ::.8.1\n");
  EXPECT_EQ(shown({}, false), "3 tcp 0.0.0.0.8.1\n4 tcp 0.0.0.0.8.1\n");
  EXPECT_EQ(shown(PeerAddress::from_ipv4(192, 0, 2, 7), true), "3 tcp 192.0.2.7.8.1\n4 tcp 192.0.2.7.8.1\n");
  EXPECT_EQ(shown(kSix, true), "3 tcp6 ::1.8.1\n4 tcp6 ::1.8.1\n");
}

}  // namespace
}  // namespace sluice::onc_rpc
