// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/export_sources.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>

#include "controlplane/mount/mount_service.h"
#include "dataplane/segment/segment.h"
#include "tests/unit/controlplane/mount/mount_lab.h"

namespace sluice::mount {
namespace {

using namespace lab;
using namespace onc_rpc;

constexpr std::uint32_t kTag = 0x01020304;

/// Answers when the test calls the stored functions.
class FakeExports final : public Exports {
 public:
  void mount(const std::string& path, const Asker& asker, OnMount done) override {
    asked.push_back(path);
    askers.push_back(asker);
    mounts.push_back(std::move(done));
  }
  void list(const Asker&, OnList done) override { lists.push_back(std::move(done)); }

  std::vector<std::string> asked;
  std::vector<Asker> askers;
  std::deque<OnMount> mounts;
  std::deque<OnList> lists;
};

class MountGroup : public testing::Test {
 protected:
  MountGroup() {
    for (const char* const name : {"a", "b", "c"}) {
      auto fake = std::make_unique<FakeExports>();
      fakes_[name] = fake.get();
      members_.push_back({upstream(name), std::move(fake)});
      in_force_.push_back(upstream(name));
    }
    exports_ = std::make_unique<GroupExports>(
        std::move(members_), [this](const std::string& name) { return parts_[name]; }, statistics_,
        GroupExports::MemberSource{.in_force = [this] { return in_force_; },
                                   .make =
                                       [this](const segment::UpstreamConfig& upstream) {
                                         auto fake = std::make_unique<FakeExports>();
                                         fakes_[upstream.name] = fake.get();
                                         return fake;
                                       }});
  }
  static segment::UpstreamConfig upstream(const char* name) {
    segment::UpstreamConfig upstream;
    std::strcpy(upstream.name, name);
    upstream.handle_tag = kTag + static_cast<std::uint32_t>(name[0] - 'a');
    return upstream;
  }
  void mount(const std::string& path) {
    exports_->mount(path, asker_, [this](const MountAnswer& answer) { answers_.push_back(answer); });
  }
  /// Mounts a path and returns the upstream and the path of the query; empty strings if no upstream is
  /// queried and the client gets NoEnt.
  std::pair<std::string, std::string> asked(const std::string& path) {
    answers_.clear();
    mount(path);
    for (auto& [name, fake] : fakes_)
      if (!fake->asked.empty()) {
        const std::string its_path = fake->asked.back();
        fake->asked.clear();
        EXPECT_TRUE(answers_.empty());
        return {name, its_path};
      }
    EXPECT_EQ(answers_.size(), 1u);
    EXPECT_EQ(answers_.at(0).status, MountStatus::NoEnt);
    return {};
  }
  MountAnswer answered(const std::string& path, const MountAnswer& by_upstream) {
    answers_.clear();
    mount(path);
    fakes_["a"]->mounts.back()(by_upstream);
    EXPECT_EQ(answers_.size(), 1u);
    return answers_.at(0);
  }

  std::map<std::string, ExportPaths> parts_ = {
      {"a", {"", {"/vol1", "/home"}}}, {"b", {"/nas", {}}}, {"c", {"/far/away", {"/", "/vol1"}}}};
  std::map<std::string, FakeExports*> fakes_;
  std::vector<GroupExports::Member> members_;
  std::vector<segment::UpstreamConfig> in_force_;
  MountStatistics statistics_;
  std::unique_ptr<GroupExports> exports_;
  std::vector<MountAnswer> answers_;
  Asker asker_{PeerAddress::from_ipv4(192, 0, 2, 1), 5'000'000'000, true};
};

using Asked = std::pair<std::string, std::string>;

TEST_F(MountGroup, the_upstream_that_has_the_path_is_asked_for_its_own) {
  EXPECT_EQ(asked("/vol1"), Asked("a", "/vol1"));
  EXPECT_EQ(asked("/vol1/"), Asked("a", "/vol1"));
  EXPECT_EQ(asked("/vol1/of/somebody"), Asked("a", "/vol1/of/somebody"));
  EXPECT_EQ(asked("//vol1/./of//somebody/."), Asked("a", "/vol1/of/somebody"));
  EXPECT_EQ(asked("/nas/vol1"), Asked("b", "/vol1"));
  EXPECT_EQ(asked("/nas"), Asked("b", "/"));
  EXPECT_EQ(asked("/far/away/vol1/below"), Asked("c", "/vol1/below"));
  EXPECT_EQ(asked("/far/away"), Asked("c", "/"));
}

TEST_F(MountGroup, a_path_that_is_no_part_of_any_is_not_asked_for) {
  for (const char* const path :
       {"/", "", "/vol", "/vol10", "/vol2", "/nasty", "/far", "vol1", "/vol1/../vol2", "/nas/../vol2"})
    EXPECT_EQ(asked(path), Asked()) << path;
}

TEST_F(MountGroup, the_client_gets_the_handle_behind_the_tag_of_its_upstream) {
  for (const std::size_t bytes : {1u, 28u, 60u}) {
    const MountAnswer answer =
        answered("/vol1", {MountStatus::Ok, Bytes(bytes, std::byte{7}), {390003, 1, 0}});
    Bytes wanted(4 + bytes, std::byte{7});
    for (std::size_t i = 0; i < 4; ++i) wanted[i] = static_cast<std::byte>(i + 1);
    EXPECT_EQ(answer.status, MountStatus::Ok);
    EXPECT_EQ(answer.handle, wanted);
    EXPECT_EQ(answer.flavors, (std::vector<std::uint32_t>{1, 0})) << "a signed call could not be forwarded";
  }
  EXPECT_EQ(answered("/vol1", {MountStatus::Acces, {}}).status, MountStatus::Acces);
  EXPECT_EQ(fakes_["a"]->askers.back().address, asker_.address) << "whose clients it is for";
}

TEST_F(MountGroup, paths_and_answers_of_an_upstream_without_a_tag_pass_as_they_are) {
  segment::UpstreamConfig only = upstream("a");
  only.handle_tag = 0;
  in_force_ = {only};
  for (const char* const path : {"/vol1/../vol2", "share", "//x/./y"})
    EXPECT_EQ(asked(path), Asked("a", path));
  const MountAnswer long_handle{MountStatus::Ok, Bytes(64, std::byte{7}), {390003, 1}};
  const MountAnswer answer = answered("/vol1", long_handle);
  EXPECT_EQ(answer.handle, long_handle.handle);
  EXPECT_EQ(answer.flavors, long_handle.flavors);
  std::vector<std::string> listed;
  exports_->list(asker_, [&](const std::vector<std::string>* paths) { listed = *paths; });
  const std::vector<std::string> paths = {"/b", "share"};
  fakes_["a"]->lists.back()(&paths);
  EXPECT_EQ(listed, paths);
  in_force_[0].allowed_count = 1;
  fakes_["a"]->asked.clear();
  const FakeExports* const before = fakes_["a"];
  EXPECT_EQ(asked("/vol1"), Asked("a", "/vol1"));
  EXPECT_NE(fakes_["a"], before) << "it has other clients by a reload";
}

TEST_F(MountGroup, an_export_whose_handles_have_no_room_for_a_tag_is_refused_and_the_log_says_why) {
  const CapturedLog log;
  for (const std::size_t bytes : {61u, 64u})
    EXPECT_EQ(answered("/vol1", {MountStatus::Ok, Bytes(bytes, std::byte{7})}).status,
              MountStatus::ServerFault);
  EXPECT_EQ(statistics_.handles_too_long.load(), 2u);
  EXPECT_EQ(log.text(),
            "An export of upstream 'a' cannot be mounted here: its file handles have 61 bytes; an upstream "
            "that is one of several for nfs3 may have 60\n")
      << "once in a while";
  asker_.now_ns += kRefusalLineNs;
  EXPECT_EQ(answered("/vol1", {MountStatus::Ok, Bytes(8, std::byte{7}), {390003}}).status,
            MountStatus::Acces);
  EXPECT_NE(log.text().find("it requires Kerberos"), std::string::npos) << log.text();
}

TEST_F(MountGroup, the_list_has_the_parts_of_all_under_the_names_of_clients) {
  std::optional<std::vector<std::string>> listed;
  const auto take = [&](const std::vector<std::string>* paths) { listed = *paths; };
  exports_->list(asker_, take);
  const std::vector<std::string> a = {"/home", "/other", "/vol1/below", "/vol10"};
  const std::vector<std::string> b = {"/vol1", "/", "relative"};
  fakes_["b"]->lists[0](&b);
  fakes_["a"]->lists[0](&a);
  EXPECT_FALSE(listed.has_value()) << "one has not answered yet";
  fakes_["c"]->lists[0](nullptr);
  EXPECT_EQ(listed, (std::vector<std::string>{"/home", "/vol1/below", "/nas/vol1", "/nas"}));
}

TEST_F(MountGroup, there_is_no_list_if_no_upstream_answers) {
  int calls = 0;
  exports_->list(asker_, [&](const std::vector<std::string>* paths) {
    EXPECT_EQ(paths, nullptr);
    ++calls;
  });
  for (const auto& [name, fake] : fakes_) fake->lists[0](nullptr);
  EXPECT_EQ(calls, 1);
}

TEST_F(MountGroup, parts_change_while_it_runs) {
  EXPECT_EQ(asked("/vol2"), Asked());
  parts_["a"].exports = {"/vol2"};
  EXPECT_EQ(asked("/vol2"), Asked("a", "/vol2"));
  EXPECT_EQ(asked("/vol1"), Asked());
}

TEST(MountGroupParts, are_those_of_the_published_configuration) {
  const auto segment = segment::Segment::in_memory();
  const segment::Layout& layout = segment->layout();
  auto block = std::make_unique<segment::ConfigBlock>();
  block->upstream_count = 2;
  std::strcpy(block->upstreams[1].name, "b");
  std::strcpy(block->upstreams[1].prefix, "/nas");
  block->upstreams[1].export_count = 1;
  std::strcpy(block->upstreams[1].exports[0].data(), "/vol1");
  layout.config.write(*block);
  EXPECT_EQ(export_paths_of(layout, "b").of_upstream("/nas/vol1"), "/vol1");
  EXPECT_EQ(export_paths_of(layout, "b").of_upstream("/nas/vol2"), std::nullopt);
  for (const char* const path : {"/nas/vol1", "/", "//"})
    EXPECT_EQ(export_paths_of(layout, "gone").of_upstream(path), std::nullopt) << path;
  block->upstreams[1].removed = 1;
  layout.config.write(*block);
  EXPECT_EQ(export_paths_of(layout, "b").of_upstream("/nas/vol1"), std::nullopt);
}

TEST_F(MountGroup, one_that_comes_has_its_part_from_then_on) {
  parts_["d"] = {"/new", {}};
  EXPECT_EQ(asked("/new/vol1"), Asked()) << "it has not come";
  in_force_.push_back(upstream("d"));
  EXPECT_EQ(asked("/new/vol1"), Asked("d", "/vol1"));
  EXPECT_EQ(asked("/vol1"), Asked("a", "/vol1")) << "those that are there stay";
  answers_.clear();
  mount("/new");
  fakes_["d"]->mounts.back()({MountStatus::Ok, Bytes(8, std::byte{9})});
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(xdr::load_u32(answers_[0].handle.data()), kTag + 3);
  bool listed = false;
  exports_->list(asker_, [&](const auto* paths) { listed = paths != nullptr; });
  for (auto& [name, fake] : fakes_) {
    const std::vector<std::string> none;
    ASSERT_EQ(fake->lists.size(), 1u) << name;
    fake->lists.back()(&none);
  }
  EXPECT_TRUE(listed);
}

TEST_F(MountGroup, one_that_goes_is_asked_no_more_and_answers_what_it_was_asked) {
  mount("/vol1");
  in_force_.clear();
  EXPECT_EQ(asked("/vol1"), Asked("a", "/vol1")) << "none is in force: the data plane is not there";
  in_force_ = {upstream("b"), upstream("c")};
  EXPECT_EQ(asked("/vol1"), Asked());
  answers_.clear();
  fakes_["a"]->mounts.front()({MountStatus::Ok, Bytes(8, std::byte{9})});
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(xdr::load_u32(answers_[0].handle.data()), kTag);
  bool listed = false;
  exports_->list(asker_, [&](const auto* paths) { listed = paths != nullptr; });
  EXPECT_TRUE(fakes_["a"]->lists.empty());
  const std::vector<std::string> none;
  for (const char* const name : {"b", "c"}) fakes_[name]->lists.back()(&none);
  EXPECT_TRUE(listed);
}

TEST_F(MountGroup, one_that_comes_back_otherwise_is_asked_as_it_is_now) {
  FakeExports* const before = fakes_["a"];
  in_force_[0].mount_port = 7;
  EXPECT_EQ(asked("/vol1"), Asked("a", "/vol1"));
  EXPECT_NE(fakes_["a"], before);
  asker_.now_ns += kRetiredNs + 1;
  EXPECT_EQ(asked("/vol1"), Asked("a", "/vol1")) << "the former one is forgotten";
}

TEST(MountGroupParts, the_upstreams_with_a_part_count_once_they_are_served) {
  const auto segment = segment::Segment::in_memory();
  segment::Layout& layout = segment->layout();
  EXPECT_TRUE(group_in_force(layout).empty());
  auto block = std::make_unique<segment::ConfigBlock>();
  block->generation = 5;
  block->upstream_count = 3;
  for (const std::uint32_t i : {1u, 2u}) {
    block->upstreams[i].route_count = 1;
    block->upstreams[i].routes[0] = {100003, 3};
  }
  block->upstreams[1].handle_tag = block->upstreams[2].handle_tag = 7;
  std::strcpy(block->upstreams[2].name, "c");
  std::strcpy(block->upstreams[1].name, "b");
  layout.config.write(*block);
  segment::UpstreamPlaces places{.count = 2, .names = {}};
  places.names[1] = {'b'};
  layout.upstream_places.write(places);
  layout.generation_applied = 4;
  EXPECT_TRUE(group_in_force(layout).empty()) << "not in force";
  layout.generation_applied = 5;
  ASSERT_EQ(group_in_force(layout).size(), 1u) << "the last is not served";
  EXPECT_STREQ(group_in_force(layout)[0].name, "b");
  block->upstreams[1].removed = 4;
  layout.config.write(*block);
  EXPECT_TRUE(group_in_force(layout).empty());
}

/// The members are real MOUNT servers. A silent one does not delay the other.
TEST(MountGroupUpstreams, one_that_is_silent_delays_no_other) {
  MountStatistics statistics;
  FakeServer silent;
  FakeServer server;
  std::vector<GroupExports::Member> members;
  std::uint32_t tag = kTag;
  for (FakeServer* each : {&silent, &server}) {
    segment::UpstreamConfig upstream;
    std::strcpy(upstream.name, each == &silent ? "silent" : "nas");
    upstream.mount_port = each->port();
    upstream.handle_tag = tag++;
    members.push_back({upstream, std::make_unique<UpstreamExports>(
                                     upstream, [] { return kFour; }, statistics)});
  }
  GroupExports exports(
      std::move(members),
      [](const std::string& name) {
        return ExportPaths{'/' + name, {}};
      },
      statistics,
      GroupExports::MemberSource{.in_force = [] { return std::vector<segment::UpstreamConfig>{}; },
                                 .make = {}});
  std::uint64_t now_ns = kStartNs;
  const Asker asker{PeerAddress::from_ipv4(192, 0, 2, 1), now_ns, true};
  std::optional<MountAnswer> waiting;
  std::optional<MountAnswer> answer;
  exports.mount("/silent/a", asker, [&](const MountAnswer& given) { waiting = given; });
  exports.mount("/nas/a", asker, [&](const MountAnswer& given) { answer = given; });
  turn_until(exports, now_ns, [&] {
    silent.pump();
    server.pump();
    return !silent.calls.empty() && !server.calls.empty();
  });
  server.answer(server.calls.at(0), encoded([](xdr::Writer& writer) {
                  encode(writer, MountAnswer{MountStatus::Ok, Bytes(8, std::byte{9})});
                }));
  turn_until(exports, now_ns, [&] { return server.pump(), answer.has_value(); });
  EXPECT_EQ(answer->handle.size(), 12u);
  EXPECT_EQ(xdr::load_u32(answer->handle.data()), kTag + 1);
  EXPECT_FALSE(waiting.has_value());
}

}  // namespace
}  // namespace sluice::mount
