// SPDX-License-Identifier: Apache-2.0
//
// Sinks of events: values from peers are escaped, and targets that are full or that block delay nothing else.
#include "controlplane/events/sinks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "controlplane/events/kinds.h"
#include "dataplane/base/setup_error.h"

namespace sluice::events {
namespace {

const std::string kHostile = "a\"b\nc\x1b[2J\xff=\\ d";

void until(
    const std::function<bool()>& condition, const std::function<void()>& poll = [] {}) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (poll(); !condition() && std::chrono::steady_clock::now() < end; poll())
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_TRUE(condition());
}

class Sinks : public testing::Test {
 protected:
  Sinks() { std::filesystem::create_directories(folder_); }
  ~Sinks() override { std::filesystem::remove_all(folder_); }

  void deny(const std::string& path) { journal_->add(MountDenied{.peer = "192.0.2.7", .path = path}); }
  Event only_event() { return journal_->read(1, 1).events.at(0); }
  std::vector<Json> lines(const std::string& name) const {
    std::ifstream file(folder_ + '/' + name);
    std::vector<Json> all;
    for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line));
    return all;
  }

  const std::string folder_ = "/tmp/sluice-sinks-test-" + std::to_string(::getpid());
  /// Polls the sink, as the loop does, until the condition is true.
  void until(Sink& sink, const std::function<bool()>& condition) {
    events::until(condition, [&] {
      arena_.deliver();
      sink.poll();
    });
  }

  std::shared_ptr<Journal> journal_ = std::make_shared<Journal>([](const Event&) {});
  tasks::Arena arena_{{.threads = 1, .queued = 4}};
};

TEST_F(Sinks, what_a_peer_has_sent_stays_in_its_field) {
  deny(kHostile);
  const std::string line = to_log_line(only_event());
  EXPECT_EQ(line,
            "A MOUNT request was denied: event=mount_denied peer=192.0.2.7 "
            "path=\"a\\\"b\\nc\\u001b[2J\\ufffd=\\\\ d\"");
  const std::string text = to_json_line(only_event(), 7);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const Json parsed = Json::parse(text);
  EXPECT_EQ(parsed["fields"]["path"], "a\"b\nc\x1b[2J\xef\xbf\xbd=\\ d");
  EXPECT_EQ(parsed["event"], "mount_denied");
  EXPECT_EQ(parsed["severity"], "warning");
  EXPECT_EQ(parsed["journal"], 7);
  // journald's fields are preceded by a length, so a newline begins no other field.
  const std::string entry = to_journald(only_event());
  const std::size_t at = entry.find("\nSLUICE_PATH\n");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(static_cast<std::size_t>(entry.at(at + 13)), kHostile.size());
  EXPECT_EQ(entry.substr(at + 21, kHostile.size() + 1), kHostile + '\n');
}

TEST_F(Sinks, a_file_gets_a_line_for_each_event_and_is_followed_when_it_is_renamed) {
  const std::string path = folder_ + "/events";
  {
    Sink sink(journal_, std::make_unique<FileTarget>(path), arena_);
    deny("/one");
    until(sink, [&] { return lines("events").size() == 1; });
    std::filesystem::rename(path, path + ".1");
    deny("/two");
    until(sink, [&] { return std::filesystem::exists(path) && lines("events").size() == 1; });
    deny("/three");
  }
  EXPECT_EQ(lines("events.1").at(0)["fields"]["path"], "/one");
  ASSERT_EQ(lines("events").size(), 2u);  // events from before the end are written
  EXPECT_EQ(lines("events").at(1)["fields"]["path"], "/three");
}

TEST_F(Sinks, a_full_disk_loses_events_and_counts_them) {
  Sink sink(journal_, std::make_unique<FileTarget>("/dev/full"), arena_);
  deny("/one");
  deny("/two");
  until(sink, [&] { return sink.lost() == 2; });
}

TEST_F(Sinks, a_fifo_that_nobody_reads_loses_whole_events_and_what_comes_through_is_whole) {
  const std::string path = folder_ + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  FileTarget target(path);
  deny(std::string(kMaxTextBytes, 'x'));
  std::size_t written = 0;
  while (target.write(only_event(), 7)) ++written;
  EXPECT_GT(written, 10u);
  std::string received;
  std::array<char, 5000> room;
  const auto receive = [&] {
    for (ssize_t bytes; (bytes = ::read(reader.get(), room.data(), room.size())) > 0;)
      received.append(room.data(), static_cast<std::size_t>(bytes));
  };
  receive();
  EXPECT_TRUE(target.write(only_event(), 7));
  receive();
  std::istringstream text(received);
  std::size_t whole = 0;
  for (std::string line; std::getline(text, line); ++whole) EXPECT_TRUE(Json::try_parse(line));
  EXPECT_EQ(whole, written + 1);
}

/// Blocks until the test sets the flag.
struct BlockedTarget final : Target {
  explicit BlockedTarget(std::shared_ptr<std::atomic<bool>> go) : go_on(std::move(go)) {}
  bool write(const Event&, std::uint64_t) override {
    while (!*go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  }
  std::shared_ptr<std::atomic<bool>> go_on;
};

TEST_F(Sinks, a_target_that_blocks_keeps_neither_who_adds_events_nor_the_end) {
  const auto go_on = std::make_shared<std::atomic<bool>>(false);
  {
    Sink sink(journal_, std::make_unique<BlockedTarget>(go_on), arena_);
    for (int i = 0; i < 10; ++i) {
      deny("/a");
      sink.poll();
    }
    EXPECT_EQ(journal_->statistics().recorded.load(), 10u);
    EXPECT_EQ(arena_.statistics().started, 1u);  // one task at a time
  }
  *go_on = true;
  events::until([&] { return journal_.use_count() == 1; });  // its tasks have ended
}

TEST_F(Sinks, a_sink_whose_arena_is_full_writes_later) {
  const auto go_on = std::make_shared<std::atomic<bool>>(false);
  Sink sink(journal_, std::make_unique<FileTarget>(folder_ + "/events"), arena_);
  while (arena_.start([go_on] {
    while (!*go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return tasks::Arena::Done();
  }))
    continue;
  deny("/one");
  sink.poll();
  *go_on = true;
  until(sink, [&] { return lines("events").size() == 1; });
}

TEST_F(Sinks, journald_gets_a_datagram_for_each_event) {
  const std::string path = folder_ + "/socket";
  EXPECT_THROW(JournaldTarget{path}, SetupError);
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  JournaldTarget target(path);
  deny("/a");
  EXPECT_TRUE(target.write(only_event(), 7));
  std::array<char, 4096> room;
  const ssize_t bytes = ::recv(socket.get(), room.data(), room.size(), 0);
  EXPECT_EQ(std::string(room.data(), static_cast<std::size_t>(bytes)), to_journald(only_event()));
  while (target.write(only_event(), 7)) continue;  // full, so write() fails immediately
}

TEST_F(Sinks, a_file_that_cannot_be_opened_is_a_sentence) {
  EXPECT_THROW(FileTarget{folder_}, SetupError);
  EXPECT_THROW(FileTarget{folder_ + "/none/events"}, SetupError);
}

}  // namespace
}  // namespace sluice::events
