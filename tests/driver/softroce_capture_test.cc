// SPDX-License-Identifier: Apache-2.0
//
// Copies of a port's packets in a file, while it works.
#include "pmd/softroce/capture.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

class CaptureTest : public RawPeerTest {
 protected:
  void SetUp() override {
    open();
    connect(own);
    for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(own.receive(i, own.sge(i * 4096, 4096)));
  }
  void TearDown() override { std::filesystem::remove(path_); }
  /// How often these bytes are in the file.
  int occurrences(std::span<const std::byte> bytes) const {
    std::ifstream file(path_, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    const std::string_view wanted(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    int found = 0;
    for (std::size_t at = content.find(wanted); at != std::string::npos; at = content.find(wanted, at + 1))
      ++found;
    return found;
  }

  const std::string path_ = testing::TempDir() + "softroce-capture-" + std::to_string(::getpid()) + ".pcapng";
};

TEST_F(CaptureTest, every_packet_of_both_ways_is_in_the_file_once) {
  Bytes request;
  {
    Capture capture(port_->config(), path_, 9216);
    port_->set_capture(&capture);
    request = frame(own, Opcode::SendOnly, kPeerPsn, pattern(700));
    inject(request);
    settle();
    EXPECT_EQ(sent.size(), 1u);
    EXPECT_EQ(capture.write(), 2u);
    EXPECT_EQ(capture.write(), 0u);
    peer_sends(Opcode::SendOnly, kPeerPsn + 1, pattern(8));
    settle();
    port_->set_capture(nullptr);
    peer_sends(Opcode::SendOnly, kPeerPsn + 2, pattern(9, 5));
    settle();
    EXPECT_EQ(capture.dropped(), 0u);
  }  // what was not written yet is now
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(occurrences(request), 1);
  EXPECT_EQ(occurrences(sent[0].bytes), 1);
  EXPECT_EQ(occurrences(sent[1].bytes), 1);
  EXPECT_EQ(occurrences(sent[2].bytes), 0);
}

TEST_F(CaptureTest, of_each_packet_only_what_was_asked_for_is_kept) {
  Bytes request;
  {
    Capture capture(port_->config(), path_, 100);
    port_->set_capture(&capture);
    request = frame(own, Opcode::SendOnly, kPeerPsn, pattern(700));
    inject(request);
    settle();
    port_->set_capture(nullptr);
  }
  EXPECT_EQ(occurrences(std::span(request).first(100)), 1);
  EXPECT_EQ(occurrences(std::span(request).first(101)), 0);
}

TEST_F(CaptureTest, what_nobody_writes_in_time_is_counted_and_the_lane_goes_on) {
  Capture capture(port_->config(), path_, 64);
  port_->set_capture(&capture);
  constexpr std::size_t kAsked = kCaptureDepth + 100;
  for (std::size_t i = 0; i < kAsked; ++i) {
    inject(frame(own, Opcode::SendOnly, 0x800000, pattern(8)));  // behind a gap: nothing is sent but one NAK
    poll();
  }
  settle();
  EXPECT_EQ(statistics().packets_received, kAsked);
  port_->set_capture(nullptr);
  settle();
  EXPECT_EQ(capture.write() + capture.dropped(), kAsked + sent.size());
  EXPECT_GT(capture.dropped(), 0u);
}

TEST_F(CaptureTest, a_file_that_cannot_be_made_is_refused_with_its_name) {
  try {
    Capture capture(port_->config(), "/nowhere/at/all.pcapng", 100);
    FAIL();
  } catch (const SetupError& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/at/all.pcapng"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::rdma::conformance
