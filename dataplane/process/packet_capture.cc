// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/packet_capture.h"

#include <rte_cycles.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "dataplane/process/pcapng.h"
#include "dataplane/segment/version.h"

namespace sluice::process {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

template <std::size_t N>
void copy_text(char (&to)[N], std::string_view text) {
  std::memset(to, 0, N);
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

rdma::softroce::CaptureFilter filter_of(const segment::CaptureRequest& request) {
  rdma::softroce::CaptureFilter filter{.peer = {}, .queue_pair = request.queue_pair};
  if (request.peer != PeerAddress{}) filter.peer = request.peer;
  return filter;
}

}  // namespace

void TscToWall::set() {
  // Between the two readings this thread may be off the processor: the closest of some pairs.
  constexpr int kTries = 3;
  std::uint64_t closest = ~std::uint64_t{0};
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = rte_rdtsc();
    const std::uint64_t wall = segment::wall_ns();
    const std::uint64_t after = rte_rdtsc();
    if (after - before >= closest) continue;
    closest = after - before;
    tsc_ = before + closest / 2;
    wall_ns_ = wall;
  }
}

std::uint64_t TscToWall::wall_ns(std::uint64_t tsc) const {
  const auto cycles = static_cast<double>(static_cast<std::int64_t>(tsc - tsc_));
  return wall_ns_ + static_cast<std::uint64_t>(static_cast<std::int64_t>(cycles * ns_per_cycle_));
}

PacketCapture::PacketCapture(rdma::softroce::Capture& frames, std::string_view interface,
                             const segment::CaptureRequest& request, FileDescriptor pipe,
                             std::uint64_t tsc_hz, std::uint64_t now_ns)
    : frames_(frames), request_(request), output_(std::move(pipe)), clock_(tsc_hz), started_ns_(now_ns) {
  frames_.start(filter_of(request), request.snap_bytes);
  status_.id = request.id;
  status_.state = segment::CaptureState::Running;
  pcapng::add_section(output_.pending(), std::string("Sluice ") + kVersion);
  pcapng::add_interface(output_.pending(), interface, request.snap_bytes);
  planned_bytes_ = output_.pending().size() + pcapng::statistics_block_bytes();
}

PacketCapture::~PacketCapture() {
  frames_.stop();
  frames_.release();
}

bool PacketCapture::turn(std::uint64_t now_ns) {
  if (over_) return false;
  clock_.set();
  if (!ending_) {
    if (const std::string_view limit = take_frames(); !limit.empty()) end(limit, now_ns);
    if (request_.seconds > 0 && now_ns - started_ns_ >= request_.seconds * kNsPerSecond)
      end("limit of time", now_ns);
  }
  const CaptureOutput::Outcome outcome = output_.flush();
  status_.bytes = output_.total();
  status_.dropped = frames_.dropped() + left_;
  if (outcome == CaptureOutput::Outcome::Gone) {
    over_ = true;
    status_.state = segment::CaptureState::Done;
    if (!ending_) copy_text(status_.end, "its reader has gone");
  } else if (ending_ && output_.drained()) {
    finish();
  } else if (ending_ && outcome == CaptureOutput::Outcome::Blocked &&
             now_ns - progress_ns_ > kFlushPatienceNs) {
    fail("The end of the capture is lost: nobody reads its output.");
  } else if (outcome == CaptureOutput::Outcome::Progress) {
    progress_ns_ = now_ns;
  }
  return !over_;
}

/// What the rings have, as far as there is room. Which limit that has reached, or empty.
std::string_view PacketCapture::take_frames() {
  for (std::uint32_t i = 0; i < kFramesPerTurn && !output_.full(); ++i) {
    if (request_.max_packets > 0 && status_.packets >= request_.max_packets) return "limit of packets";
    const rdma::softroce::CapturedFrame* frame = frames_.next();
    if (frame == nullptr) return {};
    const std::size_t block_bytes = pcapng::packet_block_bytes(frame->kept_bytes);
    if (request_.max_bytes > 0 && planned_bytes_ + block_bytes > request_.max_bytes) return "limit of bytes";
    pcapng::add_packet(output_.pending(), {.time_ns = clock_.wall_ns(frame->tsc),
                                           .wire_bytes = frame->wire_bytes,
                                           .outgoing = frame->way == rdma::softroce::Way::Out,
                                           .kept = {frame->bytes(), frame->kept_bytes}});
    frames_.pop();
    planned_bytes_ += block_bytes;
    ++status_.packets;
  }
  return {};
}

void PacketCapture::end(std::string_view why, std::uint64_t now_ns) {
  if (ending_ || over_) return;
  frames_.stop();
  clock_.set();
  if (take_frames().empty())
    for (; frames_.next() != nullptr; frames_.pop()) ++left_;
  ending_ = true;
  progress_ns_ = now_ns;
  copy_text(status_.end, why);
  const std::uint64_t dropped = frames_.dropped() + left_;
  pcapng::add_statistics(output_.pending(), clock_.wall_ns(rte_rdtsc()), status_.packets + dropped, dropped);
}

void PacketCapture::finish() {
  over_ = true;
  status_.state = segment::CaptureState::Done;
}

void PacketCapture::fail(std::string_view sentence) {
  over_ = true;
  status_.state = segment::CaptureState::Failed;
  copy_text(status_.problem, sentence);
}

}  // namespace sluice::process
