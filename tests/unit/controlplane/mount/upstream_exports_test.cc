// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/export_sources.h"

#include <gtest/gtest.h>

#include <map>

#include "controlplane/events/journal.h"
#include "controlplane/mount/mount_service.h"
#include "tests/unit/controlplane/mount/mount_lab.h"

namespace sluice::mount {
namespace {

using namespace lab;
using namespace onc_rpc;

Bytes handle_results(std::uint8_t byte) {
  return encoded([&](xdr::Writer& writer) {
    encode(writer, MountAnswer{MountStatus::Ok, Bytes(8, std::byte{byte})});
  });
}

segment::UpstreamConfig upstream_at(std::uint16_t mount_port) {
  segment::UpstreamConfig upstream;
  std::strcpy(upstream.name, "nas");
  upstream.mount_port = mount_port;
  return upstream;
}

/// An upstream whose answers the test supplies, and clients with any address.
class MountUpstream : public testing::Test {
 protected:
  void open(const segment::UpstreamConfig& upstream, std::uint16_t rpcbind_port = 1,
            UpstreamExports::Ports client_ports = UpstreamExports::Ports::Any) {
    exports_.emplace(
        upstream, [this] { return address_; }, statistics_, rpcbind_port, client_ports);
  }
  Asker asker(std::uint8_t last = 1, bool connected = true) const {
    return {PeerAddress::from_ipv4(192, 0, 2, last), now_ns_, connected};
  }
  void mount(const std::string& path, const Asker& asker) {
    exports_->mount(path, asker, [this, path](const MountAnswer& answer) { answers_.emplace(path, answer); });
  }
  void mount(const std::string& path) { mount(path, asker()); }
  void until(const std::function<bool()>& done) {
    turn_until(*exports_, now_ns_, [&] {
      for (FakeServer* server : servers_) server->pump();
      return done();
    });
  }
  void until_calls(FakeServer& server, std::size_t count) {
    until([&] { return server.calls.size() == count; });
  }
  /// Returns the answer to the only client that has mounted `path`.
  MountAnswer answered(const std::string& path) {
    until([&] { return answers_.contains(path); });
    if (!answers_.contains(path)) return {};
    EXPECT_EQ(answers_.count(path), 1u);
    return answers_.extract(path).mapped();
  }
  static std::uint64_t value(const std::atomic<std::uint64_t>& counter) { return counter.load(); }

  std::optional<PeerAddress> address_ = kFour;
  MountStatistics statistics_;
  FakeServer server_;
  std::vector<FakeServer*> servers_{&server_};
  std::optional<UpstreamExports> exports_;
  std::multimap<std::string, MountAnswer> answers_;
  std::uint64_t now_ns_ = kStartNs;
};

TEST_F(MountUpstream, those_who_ask_the_same_share_the_question_and_the_answer_is_good_for_a_while) {
  open(upstream_at(server_.port()));
  mount("/a", asker(1));
  mount("/a", asker(2));
  until_calls(server_, 1);
  server_.answer(server_.calls.at(0), handle_results(7));
  until([&] { return answers_.count("/a") == 2; });
  EXPECT_EQ(answers_.find("/a")->second.handle, Bytes(8, std::byte{7}));
  now_ns_ += kAnswerAgeNs - 1;
  mount("/a");
  EXPECT_EQ(answers_.count("/a"), 3u) << "at once";
  EXPECT_EQ(value(statistics_.questions_cached), 1u);
  now_ns_ += 1;
  mount("/a");
  until_calls(server_, 2);
  EXPECT_EQ(value(statistics_.questions), 2u);
}

TEST_F(MountUpstream, a_question_that_is_not_answered_delays_no_other_and_fails_by_its_deadline) {
  open(upstream_at(server_.port()));
  mount("/known");
  until_calls(server_, 1);
  server_.answer(server_.calls.at(0), handle_results(1));
  answered("/known");
  mount("/silent");
  until_calls(server_, 2);
  mount("/other");
  until_calls(server_, 3);
  server_.answer(server_.calls.at(2), handle_results(3));
  EXPECT_EQ(answered("/other").handle, Bytes(8, std::byte{3}));
  mount("/known");
  EXPECT_EQ(answered("/known").handle, Bytes(8, std::byte{1}));
  now_ns_ += kQuestionNs - 1;
  turns(*exports_, now_ns_);
  EXPECT_FALSE(answers_.contains("/silent"));
  now_ns_ += 1;
  EXPECT_EQ(answered("/silent").status, MountStatus::ServerFault);
  EXPECT_EQ(value(statistics_.questions_timed_out), 1u);
}

TEST_F(MountUpstream, a_connection_that_was_silent_is_replaced) {
  open(upstream_at(server_.port()));
  mount("/silent");
  until_calls(server_, 1);
  now_ns_ += kQuestionNs;
  answered("/silent");
  mount("/again");
  until_calls(server_, 2);
  EXPECT_EQ(server_.connections(), 2u);
  server_.answer(server_.calls.at(1), handle_results(1));
  EXPECT_EQ(answered("/again").status, MountStatus::Ok);
}

TEST_F(MountUpstream, the_service_answers_others_while_the_upstream_is_silent) {
  events::Journal journal([](const events::Event&) {});
  MountService service(0, "",
                       std::make_unique<UpstreamExports>(
                           upstream_at(server_.port()), [] { return kFour; }, statistics_),
                       statistics_, journal);
  const auto waiting = connect_to(service.port());
  waiting->send(record(call_message(1, kMntCall, path_argument("/silent"))));
  turn_until(service, now_ns_, [&] { return server_.pump(), server_.calls.size() == 1; });
  const auto client = connect_to(service.port());
  client->send(record(call_message(2, kNullCall)));
  waiting->send(record(call_message(3, kNullCall)));
  for (Stream* stream : {client.get(), waiting.get()})
    turn_until(service, now_ns_, [&] { return stream->receive(), stream->next().has_value(); });
}

TEST_F(MountUpstream, its_exports_are_for_its_clients) {
  segment::UpstreamConfig upstream = upstream_at(server_.port());
  upstream.allowed_count = 1;
  upstream.allowed[0] = {PeerAddress::from_ipv4(192, 0, 2, 0), 96 + 28};
  open(upstream);
  mount("/a", asker(16));
  EXPECT_EQ(answered("/a").status, MountStatus::Acces);
  std::optional<std::size_t> listed;
  const auto count_listed = [&](const std::vector<std::string>* paths) { listed = paths->size(); };
  exports_->list(asker(16), count_listed);
  EXPECT_EQ(listed, 0u);
  turns(*exports_, now_ns_);
  server_.pump();
  EXPECT_EQ(server_.connections(), 0u) << "the upstream is not asked for them";
  exports_->list(asker(15), count_listed);
  mount("/a", asker(15));
  until_calls(server_, 2);
  server_.answer(server_.calls.at(0),
                 encoded([](xdr::Writer& w) { encode(w, std::vector<std::string>{"/a"}); }));
  server_.answer(server_.calls.at(1), handle_results(1));
  EXPECT_EQ(answered("/a").status, MountStatus::Ok);
  EXPECT_EQ(listed, 1u);
  mount("/a", asker(16));
  EXPECT_EQ(answered("/a").status, MountStatus::Acces) << "also what is remembered";
}

TEST_F(MountUpstream, its_exports_are_for_privileged_ports_where_that_is_required) {
  open(upstream_at(server_.port()), 1, UpstreamExports::Ports::Privileged);
  mount("/a");
  EXPECT_EQ(answered("/a").status, MountStatus::Acces);
  turns(*exports_, now_ns_);
  EXPECT_EQ(server_.connections(), 0u) << "the upstream is not asked for it";
  Asker root = asker();
  root.privileged = true;
  mount("/a", root);
  until_calls(server_, 1);
  server_.answer(server_.calls.at(0), handle_results(1));
  EXPECT_EQ(answered("/a").status, MountStatus::Ok);
  mount("/a");
  EXPECT_EQ(answered("/a").status, MountStatus::Acces) << "also what is remembered";
}

TEST_F(MountUpstream, answers_that_are_remembered_are_bounded) {
  open(upstream_at(server_.port()));
  for (std::size_t i = 0; i < kMaxAnswers + 10; ++i) {
    mount(std::to_string(i));
    until_calls(server_, 1);
    server_.answer(server_.calls.at(0), handle_results(1));
    server_.calls.clear();
    answered(std::to_string(i));
    ++now_ns_;
  }
  EXPECT_EQ(exports_->remembered(), kMaxAnswers);
  mount(std::to_string(kMaxAnswers + 9));
  EXPECT_EQ(answers_.size(), 1u) << "the newest are kept";
}

TEST_F(MountUpstream, a_network_has_a_share_of_those_who_wait) {
  open(upstream_at(server_.port()));
  for (std::size_t i = 0; i < kMaxWaitingOfNetwork; ++i) mount(std::to_string(i), asker(1));
  EXPECT_TRUE(answers_.empty());
  mount("/more", asker(1));
  EXPECT_EQ(answered("/more").status, MountStatus::ServerFault);
  EXPECT_EQ(value(statistics_.questions_refused), 1u);
  mount("/other", asker(2));
  EXPECT_TRUE(answers_.empty());
}

TEST_F(MountUpstream, a_host_of_ipv6_cannot_multiply_its_share_by_its_addresses) {
  open(upstream_at(server_.port()));
  PeerAddress address{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}};
  for (std::uint8_t i = 0; i < kMaxWaitingOfNetwork; ++i) {
    address.bytes[15] = i;
    mount("/a", {address, now_ns_, true});
  }
  address.bytes[8] = 1;
  mount("/a", {address, now_ns_, true});
  EXPECT_EQ(answered("/a").status, MountStatus::ServerFault);
  address.bytes[7] = 2;
  mount("/a", {address, now_ns_, true});
  EXPECT_TRUE(answers_.empty());
}

TEST_F(MountUpstream, datagrams_leave_room_for_connections) {
  open(upstream_at(server_.port()));
  for (std::size_t i = 0; i < kMaxWaitingDatagrams; ++i)
    mount(std::to_string(i), asker(static_cast<std::uint8_t>(i), false));
  EXPECT_TRUE(answers_.empty());
  mount("/datagram", asker(250, false));
  EXPECT_EQ(answered("/datagram").status, MountStatus::ServerFault);
  for (std::size_t i = 0; i < kMaxWaiting - kMaxWaitingDatagrams; ++i)
    mount("/connected", asker(static_cast<std::uint8_t>(i)));
  EXPECT_TRUE(answers_.empty());
  mount("/connected", asker(251));
  EXPECT_EQ(answered("/connected").status, MountStatus::ServerFault) << "kMaxWaiting wait";
}

TEST_F(MountUpstream, its_port_is_asked_from_its_rpcbind) {
  for (const bool six : {false, true}) {
    FakeServer rpcbind(six ? AF_INET6 : AF_INET);
    FakeServer server(six ? AF_INET6 : AF_INET);
    servers_ = {&rpcbind, &server};
    if (six) address_ = kSix;
    open(upstream_at(0), rpcbind.port());
    mount("/a");
    mount("/b");
    until_calls(rpcbind, 1);
    const std::string address =
        "::." + std::to_string(server.port() >> 8) + "." + std::to_string(server.port() & 255);
    rpcbind.answer(rpcbind.calls.at(0),
                   encoded([&](xdr::Writer& w) { six ? w.string(address) : w.u32(server.port()); }));
    until_calls(server, 2);
    for (const auto& call : server.calls) server.answer(call, handle_results(1));
    EXPECT_EQ(answered("/a").status, MountStatus::Ok);
    EXPECT_EQ(answered("/b").status, MountStatus::Ok);
    mount("/c");
    until_calls(server, 3);
    EXPECT_EQ(rpcbind.calls.size(), 1u) << "the port is remembered";
    now_ns_ += kPortAgeNs;
    answered("/c");
    mount("/d");
    until_calls(rpcbind, 2);
    exports_.reset();
  }
}

TEST_F(MountUpstream, an_upstream_without_a_mount_server_or_rpcbind_is_an_error_at_once) {
  FakeServer rpcbind;
  servers_ = {&rpcbind};
  open(upstream_at(0), rpcbind.port());
  mount("/a");
  until_calls(rpcbind, 1);
  rpcbind.answer(rpcbind.calls.at(0), encoded([](xdr::Writer& w) { w.u32(0); }));
  EXPECT_EQ(answered("/a").status, MountStatus::ServerFault);
  rpcbind.stop();
  turns(*exports_, now_ns_);
  now_ns_ += kReopenNs;
  mount("/a");
  EXPECT_EQ(answered("/a").status, MountStatus::ServerFault);
  EXPECT_EQ(value(statistics_.questions_failed), 2u);
}

TEST_F(MountUpstream, a_server_that_has_come_back_at_another_port_is_found) {
  FakeServer rpcbind;
  servers_ = {&rpcbind, &server_};
  open(upstream_at(0), rpcbind.port());
  mount("/a");
  until_calls(rpcbind, 1);
  std::uint16_t port = 0;
  {
    const FakeServer gone;
    port = gone.port();
  }
  rpcbind.answer(rpcbind.calls.at(0), encoded([&](xdr::Writer& w) { w.u32(port); }));
  until_calls(rpcbind, 2);
  rpcbind.answer(rpcbind.calls.at(1), encoded([&](xdr::Writer& w) { w.u32(server_.port()); }));
  now_ns_ += kReopenNs;
  until_calls(server_, 1);
  server_.answer(server_.calls.at(0), handle_results(1));
  EXPECT_EQ(answered("/a").status, MountStatus::Ok);
}

TEST_F(MountUpstream, the_port_of_a_server_that_is_gone_is_asked_twice_at_most) {
  FakeServer rpcbind;
  servers_ = {&rpcbind};
  open(upstream_at(0), rpcbind.port());
  mount("/a");
  std::uint16_t port = 0;
  {
    const FakeServer gone;
    port = gone.port();
  }
  for (std::size_t i = 1; i <= 2; ++i) {
    until_calls(rpcbind, i);
    rpcbind.answer(rpcbind.calls.at(i - 1), encoded([&](xdr::Writer& w) { w.u32(port); }));
    now_ns_ += kReopenNs;
  }
  EXPECT_EQ(answered("/a").status, MountStatus::ServerFault);
  EXPECT_EQ(rpcbind.calls.size(), 2u);
}

TEST_F(MountUpstream, the_log_says_when_it_fails_and_when_it_answers_again_and_is_not_filled) {
  const CapturedLog log;
  open(upstream_at(server_.port()));
  const auto fail = [&] {
    mount("/a");
    until_calls(server_, 1);
    server_.answer(server_.calls.at(0), {});
    server_.calls.clear();
    answered("/a");
  };
  fail();
  fail();
  const std::string failed = "MOUNT of upstream 'nas' refuses the call, or sends an invalid answer\n";
  EXPECT_EQ(log.text(), failed);
  now_ns_ += kReportNs;
  fail();
  EXPECT_EQ(log.text(), failed) << "nothing has changed";
  for (const char* path : {"/b", "/c"}) {
    mount(path);
    until_calls(server_, 1);
    server_.answer(server_.calls.at(0), handle_results(1));
    server_.calls.clear();
    answered(path);
  }
  EXPECT_EQ(log.text(), failed + "MOUNT of upstream 'nas' answers again\n");
  fail();
  EXPECT_EQ(log.text(), failed + "MOUNT of upstream 'nas' answers again\n") << "too soon for another line";
}

TEST_F(MountUpstream, a_question_whose_connection_is_lost_is_asked_once_more) {
  open(upstream_at(server_.port()));
  mount("/a");
  until_calls(server_, 1);
  server_.end_connections();
  now_ns_ += kReopenNs;
  until_calls(server_, 2);
  server_.end_connections();
  EXPECT_EQ(answered("/a").status, MountStatus::ServerFault);
  EXPECT_EQ(value(statistics_.questions_failed), 1u);
  turns(*exports_, now_ns_);
  server_.pump();
  EXPECT_EQ(server_.calls.size(), 2u);
}

TEST_F(MountUpstream, connections_are_not_made_faster_than_privileged_ports_come_back) {
  open(upstream_at(server_.port()));
  mount("/a");
  until_calls(server_, 1);
  server_.end_connections();
  turns(*exports_, now_ns_);
  server_.pump();
  EXPECT_EQ(server_.connections(), 1u);
  now_ns_ += kReopenNs;
  until_calls(server_, 2);
}

TEST_F(MountUpstream, replies_with_a_defect_fail_their_question_only) {
  open(upstream_at(server_.port()));
  mount("/short");
  mount("/long");
  mount("/good");
  until_calls(server_, 3);
  server_.answer(server_.calls.at(0), Bytes(4));
  Bytes handle = encoded([](xdr::Writer& w) { w.words(0, kMaxHandle + 4); });
  handle.resize(kMaxHandle + 20);
  server_.answer(server_.calls.at(1), handle);
  server_.answer(server_.calls.at(2), handle_results(1));
  EXPECT_EQ(answered("/short").status, MountStatus::ServerFault);
  EXPECT_EQ(answered("/long").status, MountStatus::ServerFault);
  EXPECT_EQ(answered("/good").status, MountStatus::Ok);
  EXPECT_EQ(value(statistics_.questions_failed), 2u);
  mount("/short");
  until_calls(server_, 4);
}

TEST_F(MountUpstream, a_list_of_many_exports_is_taken_and_one_that_is_too_long_is_an_error) {
  open(upstream_at(server_.port()));
  std::vector<std::string> paths(200, std::string(1000, 'p'));
  std::optional<std::size_t> listed;
  const auto count_listed = [&](const std::vector<std::string>* list) {
    listed = list != nullptr ? list->size() : 0;
  };
  const auto results = [&] {
    Bytes bytes(encoded_bytes(paths));
    xdr::Writer writer(bytes);
    encode(writer, paths);
    return bytes;
  };
  exports_->list(asker(), count_listed);
  until_calls(server_, 1);
  server_.answer(server_.calls.at(0), results());
  until([&] { return listed.has_value(); });
  EXPECT_EQ(listed, 200u);
  now_ns_ += kAnswerAgeNs;
  listed.reset();
  paths.resize(300, paths[0]);
  exports_->list(asker(), count_listed);
  until_calls(server_, 2);
  server_.answer(server_.calls.at(1), results());
  until([&] { return listed.has_value(); });
  EXPECT_EQ(listed, 0u);
  mount("/a");
  until_calls(server_, 3);
  server_.answer(server_.calls.at(2), handle_results(1));
  EXPECT_EQ(answered("/a").status, MountStatus::Ok) << "on the same connection";
}

TEST_F(MountUpstream, another_address_is_asked_when_the_first_does_not_answer_any_more) {
  FakeServer other(PeerAddress::from_ipv4(127, 0, 0, 2), server_.port());
  servers_.push_back(&other);
  open(upstream_at(server_.port()));
  mount("/a");
  until_calls(server_, 1);
  server_.answer(server_.calls[0], handle_results(1));
  answered("/a");
  address_ = PeerAddress::from_ipv4(127, 0, 0, 2);
  mount("/b");
  until_calls(other, 1);
  other.answer(other.calls[0], handle_results(2));
  EXPECT_EQ(answered("/b").handle, Bytes(8, std::byte{2}));
}

TEST_F(MountUpstream, at_another_address_the_port_is_another_one) {
  FakeServer rpcbind;
  FakeServer other_rpcbind(PeerAddress::from_ipv4(127, 0, 0, 2), rpcbind.port());
  FakeServer something(PeerAddress::from_ipv4(127, 0, 0, 2), server_.port());
  servers_ = {&rpcbind, &other_rpcbind, &server_, &something};
  open(upstream_at(0), rpcbind.port());
  mount("/a");
  until_calls(rpcbind, 1);
  rpcbind.answer(rpcbind.calls[0], encoded([&](xdr::Writer& writer) { writer.u32(server_.port()); }));
  until_calls(server_, 1);
  address_ = PeerAddress::from_ipv4(127, 0, 0, 2);
  mount("/b");
  until_calls(other_rpcbind, 1);
  EXPECT_EQ(something.connections(), 0u);
}

TEST_F(MountUpstream, a_name_that_cannot_be_resolved_is_said_at_once) {
  const CapturedLog log;
  address_.reset();
  open(upstream_at(server_.port()));
  mount("/a");
  EXPECT_EQ(answered("/a").status, MountStatus::ServerFault);
  EXPECT_NE(log.text().find("has no address"), std::string::npos) << log.text();
  EXPECT_EQ(value(statistics_.questions_failed), 1u);
}

}  // namespace
}  // namespace sluice::mount
