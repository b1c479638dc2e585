// SPDX-License-Identifier: Apache-2.0
#include "controlplane/onc_rpc/poll_thread.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "dataplane/base/file_descriptor.h"

namespace sluice::onc_rpc {
namespace {

/// Counts its polls, and takes some of them to finish.
class Counted final : public PolledService {
 public:
  explicit Counted(int polls_to_finish = 0) : left_(polls_to_finish) {}

  void prepare(PollSet& set) override { place_ = set.add(event_.get(), POLLIN); }
  void poll(const PollSet& set, std::uint64_t) override {
    thread = std::this_thread::get_id();
    eventfd_t ignored = 0;
    if (set.events(place_) != 0) ::eventfd_read(event_.get(), &ignored);
    if (finishing_ && left_ > 0) --left_, signal();
    ++polls;
  }
  void finish(std::uint64_t) override {
    finishing_ = true;
    signal();
  }
  bool finished() const override { return left_ == 0; }

  void signal() { ::eventfd_write(event_.get(), 1); }
  /// Signals this service, and waits until it has been polled.
  void expect_polled() {
    const int before = polls;
    signal();
    while (polls == before) std::this_thread::yield();
  }
  int left() const { return left_; }

  std::atomic<int> polls{0};
  std::atomic<std::thread::id> thread{};

 private:
  const FileDescriptor event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::size_t place_ = PollSet::kNowhere;
  bool finishing_ = false;
  int left_;
};

TEST(PollThread, services_share_the_thread_and_each_has_its_events) {
  Counted first;
  Counted second;
  PollThread thread("test");
  const PollThread::Attachment attached_first(thread, first);
  const PollThread::Attachment attached_second(thread, second);
  first.expect_polled();
  second.expect_polled();
  EXPECT_EQ(first.thread.load(), second.thread.load());
  EXPECT_NE(first.thread.load(), std::this_thread::get_id());
}

TEST(PollThread, a_service_is_polled_until_it_has_finished_and_others_continue) {
  Counted lasting;
  Counted ending(3);
  PollThread thread("test");
  const PollThread::Attachment attached(thread, lasting);
  {
    const PollThread::Attachment attached_ending(thread, ending);
    ending.expect_polled();
    EXPECT_EQ(ending.left(), 3);
  }
  EXPECT_EQ(ending.left(), 0);
  const int polls = ending.polls;
  for (int i = 0; i < 10; ++i) lasting.expect_polled();
  EXPECT_EQ(ending.polls, polls) << "a detached service is not polled";
}

TEST(PollThread, a_service_can_be_attached_again) {
  Counted service;
  PollThread thread("test");
  for (int i = 0; i < 3; ++i) {
    const PollThread::Attachment attached(thread, service);
    service.expect_polled();
  }
}

}  // namespace
}  // namespace sluice::onc_rpc
