// SPDX-License-Identifier: Apache-2.0
//
// The control plane's side of passing a channel to the data plane.
#include "controlplane/cm/connections.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "dataplane/segment/channels.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/segment.h"
#include "tests/unit/log/captured_log.h"

namespace sluice::cm {
namespace {

class ChannelOfferTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kEpoch = 7;
  static constexpr std::uint64_t kStartNs = 1'000'000'000'000;

  ChannelOfferTest() { layout_.control_plane.owner = std::uint64_t{kEpoch} << 32 | 1; }

  void start_data_plane() { inbox_.emplace(segment::kept_socket_of(name_), 0660, ::geteuid()); }
  void poll(std::uint64_t after_ns) { offer_.poll(STDIN_FILENO, kStartNs + after_ns); }
  /// Returns the number of datagrams with the channel since the last call.
  int arrived() {
    int count = 0;
    segment::KeptChannel got;
    FileDescriptor descriptor;
    while (inbox_->receive(std::as_writable_bytes(std::span(&got, 1)), descriptor) ==
           segment::DatagramInbox::Got::Datagram)
      count += got.magic == segment::kKeptChannelMagic && got.epoch == kEpoch && descriptor ? 1 : 100;
    return count;
  }

  const std::string name_ = "sluice-channel-offer-" + std::to_string(::getpid());
  const Owned<segment::Segment> segment_ = segment::Segment::in_memory();
  segment::Layout& layout_ = segment_->layout();
  std::optional<segment::DatagramInbox> inbox_;
  ChannelOffer offer_{layout_, name_};
};

TEST_F(ChannelOfferTest, is_repeated_until_the_data_plane_has_it) {
  start_data_plane();
  poll(0);
  EXPECT_EQ(arrived(), 1);
  poll(ChannelOffer::kRepeatNs - 1);
  EXPECT_EQ(arrived(), 0);
  poll(ChannelOffer::kRepeatNs);
  EXPECT_EQ(arrived(), 1);
  layout_.kept_epoch = kEpoch;
  poll(2 * ChannelOffer::kRepeatNs);
  EXPECT_EQ(arrived(), 0);
}

TEST_F(ChannelOfferTest, is_made_again_to_a_data_plane_that_comes_later_or_anew) {
  poll(0);  // no data plane runs
  start_data_plane();
  poll(ChannelOffer::kRepeatNs);
  EXPECT_EQ(arrived(), 1);
  layout_.kept_epoch = kEpoch;
  poll(2 * ChannelOffer::kRepeatNs);
  layout_.kept_epoch = 0;
  poll(3 * ChannelOffer::kRepeatNs);
  EXPECT_EQ(arrived(), 1);
}

TEST_F(ChannelOfferTest, of_a_predecessor_that_is_held_does_not_count) {
  start_data_plane();
  layout_.kept_epoch = kEpoch - 1;
  poll(0);
  EXPECT_EQ(arrived(), 1);
}

TEST_F(ChannelOfferTest, that_nobody_takes_is_complained_of_once_while_a_data_plane_is_there) {
  CapturedLog log;
  const auto said = [&] { return log.take(); };
  poll(0);
  poll(2 * ChannelOffer::kPatienceNs);
  EXPECT_EQ(said(), "");
  for (const std::uint64_t again : {3, 6}) {
    const std::uint64_t from = again * ChannelOffer::kPatienceNs;
    segment::start_heartbeat(layout_.data_plane, kStartNs + from, 0);
    poll(from);
    EXPECT_EQ(said(), "");
    segment::beat(layout_.data_plane, kStartNs + from + ChannelOffer::kPatienceNs);
    poll(from + ChannelOffer::kPatienceNs);
    EXPECT_NE(said().find("has not accepted their channel at /dev/shm/" + name_ + ".kept"),
              std::string::npos);
    poll(from + ChannelOffer::kPatienceNs + ChannelOffer::kRepeatNs);
    EXPECT_EQ(said(), "");
    layout_.kept_epoch = kEpoch;
    poll(from + ChannelOffer::kPatienceNs + 2 * ChannelOffer::kRepeatNs);
    layout_.kept_epoch = 0;
  }
}

}  // namespace
}  // namespace sluice::cm
