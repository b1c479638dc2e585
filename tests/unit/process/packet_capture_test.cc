// SPDX-License-Identifier: Apache-2.0
//
// Packet captures: file contents, limits, and outputs without a reader. The test plays the lanes.
#include "dataplane/process/capture.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/process/pcapng.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

using rdma::softroce::Capture;
using rdma::softroce::Way;
using segment::CaptureRequest;
using segment::CaptureState;

constexpr std::uint64_t kTscHz = 2'000'000'000;

struct Pipe {
  FileDescriptor reader;
  FileDescriptor writer;
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    EXPECT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
};

/// One block of the file.
struct Block {
  std::uint32_t type = 0;
  std::vector<std::byte> body;
  std::uint32_t word(std::size_t index) const {
    std::uint32_t value = 0;
    std::memcpy(&value, body.data() + index * sizeof value, sizeof value);
    return value;
  }
};

std::vector<Block> blocks_of(const std::vector<std::byte>& file) {
  std::vector<Block> blocks;
  for (std::size_t at = 0; at < file.size();) {
    std::uint32_t head[2];
    std::memcpy(head, file.data() + at, sizeof head);
    std::uint32_t again = 0;
    std::memcpy(&again, file.data() + at + head[1] - sizeof again, sizeof again);
    EXPECT_EQ(head[1], again);
    EXPECT_EQ(head[1] % 4, 0u);
    const auto from = file.begin() + static_cast<long>(at);
    blocks.push_back({head[0], {from + 8, from + head[1] - 4}});
    at += head[1];
  }
  return blocks;
}

class PacketCaptureTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kSecond = 1'000'000'000;
  static constexpr std::uint32_t kPacketBlock = 6;
  static constexpr std::uint32_t kStatisticsBlock = 5;

  PacketCaptureTest() { ::signal(SIGPIPE, SIG_IGN); }
  void start(const CaptureRequest& request = {.id = 7, .snap_bytes = 9216}) {
    capture_.emplace(frames_, "softroce0", request, std::move(pipe_.writer), kTscHz, now_ns_);
  }
  /// Adds a frame of `bytes` bytes in two pieces, as a lane does.
  void frame(std::uint8_t fill, std::size_t bytes, Way way = Way::In, std::uint32_t lane = 0) {
    std::vector<std::byte> data(bytes, std::byte{fill});
    rte_mbuf head{};
    rte_mbuf tail{};
    head.buf_addr = data.data();
    head.data_len = static_cast<std::uint16_t>(std::min<std::size_t>(bytes, 60));
    head.pkt_len = static_cast<std::uint32_t>(bytes);
    head.next = &tail;
    tail.buf_addr = data.data() + head.data_len;
    tail.data_len = static_cast<std::uint16_t>(bytes - head.data_len);
    rte_mbuf* packets[] = {&head};
    frames_.add(lane, packets, way);
  }
  bool turn(std::uint64_t ns = 0) { return capture_->poll(now_ns_ += ns); }
  /// Reads everything that is available now.
  void read() {
    std::byte buffer[65536];
    for (ssize_t bytes; (bytes = ::read(pipe_.reader.get(), buffer, sizeof buffer)) > 0;)
      file_.insert(file_.end(), buffer, buffer + bytes);
  }
  /// Polls and reads until the capture has ended, and returns all blocks.
  std::vector<Block> rest() {
    for (int i = 0; i < 1000 && turn(); ++i) read();
    read();
    return blocks_of(file_);
  }
  long packets(const std::vector<Block>& blocks) {
    return std::count_if(blocks.begin(), blocks.end(), [](const Block& b) { return b.type == kPacketBlock; });
  }
  const segment::CaptureStatus& status() { return capture_->status(); }

  Pipe pipe_;
  Capture frames_{{.lanes = 2, .addresses = {}, .gateways = {}}};
  std::optional<PacketCapture> capture_;
  std::uint64_t now_ns_ = 100 * kSecond;
  std::vector<std::byte> file_;
};

TEST_F(PacketCaptureTest, a_file_has_its_headers_each_packet_once_and_what_was_dropped) {
  const std::uint64_t before = segment::wall_ns();
  start();
  frame(1, 101);
  frame(2, 64, Way::Out, 1);
  EXPECT_TRUE(turn());
  frame(3, 9000);
  EXPECT_TRUE(turn());
  capture_->end("stopped", now_ns_);
  const std::vector<Block> blocks = rest();
  ASSERT_EQ(blocks.size(), 6u);
  EXPECT_EQ(blocks[0].type, 0x0A0D0D0Au);
  EXPECT_EQ(blocks[0].word(0), 0x1A2B3C4Du);
  EXPECT_EQ(blocks[1].type, 1u);
  EXPECT_EQ(packets(blocks), 3);
  const struct {
    std::uint8_t fill;
    std::uint32_t kept;
    std::uint32_t wire;
    std::uint32_t flags;
  } wanted[] = {{1, 101, 101, 1}, {2, 64, 64, 2}, {3, 1518, 9000, 1}};  // at most a frame of this MTU
  for (std::size_t i = 0; i < 3; ++i) {
    const Block& block = blocks[2 + i];
    const std::uint64_t time = std::uint64_t{block.word(1)} << 32 | block.word(2);
    EXPECT_NEAR(static_cast<double>(time), static_cast<double>(before), 60e9) << "of the wall clock";
    EXPECT_EQ(block.word(3), wanted[i].kept);
    EXPECT_EQ(block.word(4), wanted[i].wire);
    EXPECT_EQ(block.body[20 + wanted[i].kept - 1], std::byte{wanted[i].fill});
    EXPECT_EQ(block.word(5 + (wanted[i].kept + 3) / 4 + 1), wanted[i].flags);
    EXPECT_EQ(pcapng::packet_block_bytes(wanted[i].kept), block.body.size() + 12);
  }
  EXPECT_EQ(blocks[5].type, kStatisticsBlock);
  EXPECT_EQ(pcapng::statistics_block_bytes(), blocks[5].body.size() + 12);
  EXPECT_EQ(status().state, CaptureState::Done);
  EXPECT_STREQ(status().end, "stopped");
  EXPECT_EQ(status().packets, 3u);
  EXPECT_EQ(status().bytes, file_.size());
}

TEST_F(PacketCaptureTest, a_limit_of_packets_ends_it) {
  start({.id = 7, .max_packets = 2, .snap_bytes = 100});
  for (int i = 0; i < 5; ++i) frame(1, 64);
  EXPECT_EQ(packets(rest()), 2);
  EXPECT_STREQ(status().end, "packet limit");
}

TEST_F(PacketCaptureTest, a_limit_of_bytes_is_never_exceeded) {
  constexpr std::uint64_t kLimit = 4000;
  start({.id = 7, .max_bytes = kLimit, .snap_bytes = 1500});
  for (int i = 0; i < 10; ++i) frame(1, 1000);
  EXPECT_EQ(packets(rest()), 3);
  EXPECT_LE(file_.size(), kLimit);
  EXPECT_EQ(status().state, CaptureState::Done);
  EXPECT_STREQ(status().end, "byte limit");
}

TEST_F(PacketCaptureTest, a_limit_of_time_ends_it_where_no_packet_comes) {
  start({.id = 7, .seconds = 3, .snap_bytes = 100});
  EXPECT_TRUE(turn(3 * kSecond - 1));
  frame(1, 64);
  read();
  turn(1);
  EXPECT_EQ(packets(rest()), 1);
  EXPECT_STREQ(status().end, "time limit");
}

TEST_F(PacketCaptureTest, it_ends_with_its_reader_before_any_packet) {
  start();
  EXPECT_TRUE(turn());
  read();
  EXPECT_TRUE(turn());
  pipe_.reader.reset();
  EXPECT_FALSE(turn());
  EXPECT_EQ(status().state, CaptureState::Done);
  EXPECT_STREQ(status().end, "its reader closed the pipe");
}

TEST_F(PacketCaptureTest, a_reader_that_does_not_read_costs_packets_and_nothing_else) {
  start({.id = 7, .seconds = 5, .snap_bytes = 1500});
  constexpr std::uint64_t kMany = 20'000;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    frame(1, 1500);
    if (i % 100 == 0) {
      ASSERT_TRUE(turn());
    }
  }
  EXPECT_LT(capture_->output().total(), CaptureOutput::kMaxPendingBytes);
  EXPECT_TRUE(turn(6 * kSecond));
  EXPECT_TRUE(turn(PacketCapture::kFlushPatienceNs));
  EXPECT_FALSE(turn(1)) << "the end waits no longer for its reader";
  EXPECT_EQ(status().state, CaptureState::Failed);
  EXPECT_NE(std::string(status().problem).find("its output was not read"), std::string::npos);
  EXPECT_GT(status().dropped, 0u);
  EXPECT_EQ(status().packets + status().dropped, kMany);
}

TEST_F(PacketCaptureTest, only_the_writing_end_of_a_pipe_is_written_to) {
  const std::string path = testing::TempDir() + unique_name("capture");
  std::ofstream(path) << "precious";
  for (const int fd :
       {::open(path.c_str(), O_WRONLY), ::open("/dev/null", O_WRONLY), pipe_.reader.release(), -1}) {
    pipe_.writer.reset(fd);
    EXPECT_THROW(start(), SetupError);
  }
  EXPECT_EQ(std::filesystem::file_size(path), 8u);
  std::filesystem::remove(path);
}

// --- The service

class CaptureServiceTest : public testing::Test {
 protected:
  static constexpr auto kPatience = std::chrono::seconds(60);

  segment::CaptureStatus status_of(std::uint64_t id, CaptureState state) {
    segment::CaptureStatus status;
    for (const auto end = std::chrono::steady_clock::now() + kPatience;
         std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (const auto read = segment_.layout().capture_status.read()) {
        status = *read;
        if (read->id == id && read->state == state) break;
      }
    return status;
  }

  const std::string path_ = "/dev/shm/" + unique_name("capture") + ".capture";
  MemorySegment segment_;
};

TEST_F(CaptureServiceTest, without_softroce_a_request_fails_with_a_sentence_and_its_pipe_is_closed) {
  CaptureService service(segment_.layout(), path_, ::geteuid(), nullptr);
  Pipe pipe;
  segment::send_capture_request(path_, {.id = 5}, pipe.writer.get());
  const segment::CaptureStatus status = status_of(5, CaptureState::Failed);
  EXPECT_NE(std::string(status.problem).find("Only the softroce driver"), std::string::npos);
  pipe.writer.reset();
  char byte;
  ::fcntl(pipe.reader.get(), F_SETFL, 0);
  EXPECT_EQ(::read(pipe.reader.get(), &byte, 1), 0) << "the service has closed its copy";
}

TEST_F(CaptureServiceTest, what_is_no_request_is_dropped_and_the_next_one_is_taken) {
  CaptureService service(segment_.layout(), path_, ::geteuid(), nullptr);
  segment::send_capture_request(path_, {.magic = 1, .id = 4}, -1);
  segment::send_capture_request(path_, {.action = segment::CaptureAction::Stop, .id = 4}, -1);
  segment::send_capture_request(path_, {.id = 5}, -1);
  EXPECT_EQ(status_of(5, CaptureState::Failed).id, 5u);
}

TEST_F(CaptureServiceTest, its_socket_goes_with_it_and_one_that_was_left_behind_is_replaced) {
  { std::ofstream left(path_); }
  {
    CaptureService service(segment_.layout(), path_, ::geteuid(), nullptr);
    segment::send_capture_request(path_, {.id = 5}, -1);
    EXPECT_EQ(status_of(5, CaptureState::Failed).id, 5u);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THROW(segment::send_capture_request(path_, {.id = 6}, -1), SetupError);
}

}  // namespace
}  // namespace sluice::process
