// SPDX-License-Identifier: Apache-2.0
#include "controlplane/configuration.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <memory>
#include <string>
#include <thread>

namespace sluice::controlplane {
namespace {

/// A file of one word, which the reader reads when the test permits it.
class Reload : public ::testing::Test {
 protected:
  void request(const std::string& who) {
    reloader_.request([this, who](const admin::ReloadResult& result) {
      answers_ += who + ':' + (result.problem.empty() ? result.changes.live.at(0) : result.problem) + ' ';
      if (again_ && who == "a") request("again");
    });
  }
  void let_read(const std::string& text) { file_->set_value(text); }
  void until(const std::string& answers) {
    while (answers_ != answers) {
      ASSERT_LE(answers_.size(), answers.size()) << answers_;
      pollfd wake{arena_.descriptor(), POLLIN, 0};
      ::poll(&wake, 1, -1);
      arena_.deliver();
    }
  }
  Reloader::Read begin() {
    ++begun_;
    file_ = std::make_shared<std::promise<std::string>>();
    return [file = file_]() -> Reloader::Apply {
      const std::string text = file->get_future().get();
      const auto reader = std::this_thread::get_id();
      return [text, reader] {
        EXPECT_NE(std::this_thread::get_id(), reader) << "it is applied by the loop";
        if (text == "defect") return admin::ReloadResult{{}, "line 1"};
        return admin::ReloadResult{{.live = {text}, .restart_control = {}, .restart_both = {}}, {}};
      };
    };
  }

  tasks::Arena arena_{{.threads = 1, .queued = 0, .end_ms = 0}};
  int begun_ = 0;
  bool again_ = false;
  std::string answers_;
  std::shared_ptr<std::promise<std::string>> file_;
  Reloader reloader_{arena_, [this] { return begin(); }};
};

TEST_F(Reload, the_loop_goes_on_while_files_are_read) {
  request("a");
  arena_.deliver();
  EXPECT_EQ(answers_, "");
  let_read("new");
  until("a:new ");
}

TEST_F(Reload, who_asks_during_a_reading_is_answered_by_the_next) {
  request("a");
  request("b");
  request("c");
  EXPECT_EQ(begun_, 1);
  let_read("old");
  until("a:old ");
  EXPECT_EQ(begun_, 2) << "one for both";
  let_read("new");
  until("a:old b:new c:new ");
  EXPECT_EQ(begun_, 2);
}

TEST_F(Reload, a_defect_is_told_to_those_who_asked) {
  request("a");
  request("b");
  let_read("defect");
  until("a:line 1 ");
  let_read("new");
  until("a:line 1 b:new ");
}

TEST_F(Reload, an_answer_may_ask_again) {
  again_ = true;
  request("a");
  request("b");
  let_read("1");
  until("a:1 ");
  let_read("2");
  while (answers_ == "a:1 ") until("a:1 b:2 again:2 ");
  EXPECT_EQ(begun_, 2);
}

TEST_F(Reload, a_full_arena_is_said_at_once) {
  const auto gate = std::make_shared<std::promise<void>>();
  ASSERT_TRUE(arena_.start([gate] {
    gate->get_future().wait();
    return tasks::Arena::Done();
  }));
  request("a");
  EXPECT_EQ(answers_, "a:The control plane is overloaded. Try again later.\n ");
  gate->set_value();
  while (arena_.outstanding() > 0) arena_.deliver();
  request("b");
  let_read("new");
  until("a:The control plane is overloaded. Try again later.\n b:new ");
}

}  // namespace
}  // namespace sluice::controlplane
