// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/methods.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>

#include "dataplane/segment/channels.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

/// The test plays the data plane.
class CaptureMethods : public testing::Test {
 protected:
  CaptureMethods() {
    add_capture(registry_, segment_.layout(), path_);
    inbox_.emplace(path_, ::geteuid());
    EXPECT_EQ(::pipe2(pipe_, O_CLOEXEC), 0);
  }
  ~CaptureMethods() override {
    for (const int end : pipe_) ::close(end);
  }
  Json answer(const std::string& method, const Json& parameters, int passed = -1) {
    const FileDescriptor descriptor(passed >= 0 ? ::dup(passed) : -1);
    return Json::parse(registry_.answer(
        Json{{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", parameters}}.dump(),
        Access::Change, descriptor));
  }
  std::string refusal(const Json& parameters, int passed) {
    const Json got = answer("capture_start", parameters, passed);
    return got.contains("error") ? got["error"]["message"].get<std::string>() : "";
  }

  const std::string path_ = "/dev/shm/sluice-capture-methods-" + std::to_string(::getpid());
  lab::TestSegment segment_{"capture"};
  Registry registry_;
  std::optional<segment::CaptureInbox> inbox_;
  int pipe_[2];
};

TEST_F(CaptureMethods, a_request_goes_to_the_data_plane_with_the_clients_pipe) {
  const Json started = answer("capture_start",
                              {{"packets", 5},
                               {"bytes", 4096},
                               {"seconds", 3},
                               {"snap", 100},
                               {"peer", "192.0.2.9"},
                               {"queue_pair", 77}},
                              pipe_[1])["result"];
  auto received = inbox_->receive();
  ASSERT_TRUE(received);
  const segment::CaptureRequest& request = received->request;
  EXPECT_EQ(request.action, segment::CaptureAction::Start);
  EXPECT_EQ(request.id, started["id"]);
  EXPECT_EQ(request.max_packets, 5u);
  EXPECT_EQ(request.max_bytes, 4096u);
  EXPECT_EQ(request.seconds, 3u);
  EXPECT_EQ(request.snap_bytes, 100u);
  EXPECT_EQ(request.peer, PeerAddress::from_ipv4(192, 0, 2, 9));
  EXPECT_EQ(request.queue_pair, 77u);
  EXPECT_EQ(::write(received->descriptor.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(pipe_[0], &byte, 1), 1);
  answer("capture_stop", {{"id", started["id"]}});
  received = inbox_->receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->request.action, segment::CaptureAction::Stop);
  EXPECT_EQ(received->request.id, started["id"]);
  EXPECT_FALSE(received->descriptor);
  EXPECT_FALSE(inbox_->receive());
}

/// `sluicectl connections` shows link-local addresses with their interface.
TEST_F(CaptureMethods, a_peer_on_the_link_of_an_interface_is_one_of_the_devices_only_link) {
  EXPECT_EQ(refusal({{"peer", "fe80::9%lo"}}, pipe_[1]), "");
  const auto received = inbox_->receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(to_string(received->request.peer), "fe80::9");
}

TEST_F(CaptureMethods, what_cannot_be_is_refused_with_a_sentence_and_goes_nowhere) {
  EXPECT_NE(refusal(Json::object(), -1).find("pipe"), std::string::npos);
  EXPECT_NE(refusal({{"peer", "nonsense"}}, pipe_[1]).find("IP address"), std::string::npos);
  EXPECT_NE(refusal({{"seconds", "x"}}, pipe_[1]), "");
  segment::Layout& layout = segment_.layout();
  segment::start_heartbeat(layout.data_plane, segment::monotonic_ns(), segment::wall_ns());
  layout.capture_status.write({.id = 3, .state = segment::CaptureState::Running});
  EXPECT_NE(refusal(Json::object(), pipe_[1]).find("runs already"), std::string::npos);
  EXPECT_FALSE(inbox_->receive());
  layout.data_plane.pid = 0;  // killed during its capture
  EXPECT_EQ(refusal(Json::object(), pipe_[1]), "");
  EXPECT_TRUE(inbox_->receive());
  inbox_.reset();
  EXPECT_NE(refusal(Json::object(), pipe_[1]).find("whether it runs"), std::string::npos);
}

TEST_F(CaptureMethods, the_status_says_why_it_has_ended) {
  segment::Layout& layout = segment_.layout();
  EXPECT_EQ(answer("capture_status", Json::object())["result"]["state"], "none");
  segment::CaptureStatus status{
      .id = 9, .state = segment::CaptureState::Done, .packets = 4, .bytes = 5, .dropped = 6};
  std::strcpy(status.end, "time limit");
  layout.capture_status.write(status);
  const Json done = answer("capture_status", Json::object())["result"];
  EXPECT_EQ(done["state"], "done");
  EXPECT_EQ(done["end"], "time limit");
  EXPECT_EQ(done["packets"], 4);
  EXPECT_EQ(done["dropped"], 6);
}

}  // namespace
}  // namespace sluice::admin
