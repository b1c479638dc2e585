// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rte_cycles.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/log/log.h"
#include "dataplane/process/pcapng.h"
#include "dataplane/segment/version.h"

namespace sluice::process {

CaptureOutput::CaptureOutput(FileDescriptor pipe) : pipe_(std::move(pipe)) {
  struct stat status {};
  const int flags = pipe_ ? ::fcntl(pipe_.get(), F_GETFL) : -1;
  if (flags < 0 || ::fstat(pipe_.get(), &status) != 0 || !S_ISFIFO(status.st_mode) ||
      (flags & O_ACCMODE) == O_RDONLY)
    throw SetupError("A capture is written only to a pipe. Pass its writing end with the request.");
  if (::fcntl(pipe_.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    throw SetupError(std::string("The capture's pipe cannot be made non-blocking (") + std::strerror(errno) +
                     "). Try again.");
}

CaptureOutput::Outcome CaptureOutput::flush() {
  // Checked even if there is nothing to write, because the reader may close the pipe before the first packet.
  pollfd reader{pipe_.get(), 0, 0};
  if (::poll(&reader, 1, 0) > 0 && (reader.revents & POLLERR) != 0) return Outcome::Gone;
  const std::size_t before = total_;
  while (written_ < pending_.size()) {
    const ssize_t bytes = ::write(pipe_.get(), pending_.data() + written_, pending_.size() - written_);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) break;
    if (bytes <= 0) return Outcome::Gone;
    written_ += static_cast<std::size_t>(bytes);
    total_ += static_cast<std::size_t>(bytes);
  }
  if (drained() || written_ >= kMaxPendingBytes) {
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(written_));
    written_ = 0;
  }
  return total_ > before || pending_.empty() ? Outcome::Progress : Outcome::Blocked;
}

// --- One capture

namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

template <std::size_t N>
void copy_text(char (&to)[N], std::string_view text) {
  std::memset(to, 0, N);
  std::memcpy(to, text.data(), smaller_of(text.size(), N - 1));
}

rdma::softroce::CaptureFilter filter_of(const segment::CaptureRequest& request) {
  rdma::softroce::CaptureFilter filter{.peer = {}, .queue_pair = request.queue_pair};
  if (request.peer != PeerAddress{}) filter.peer = request.peer;
  return filter;
}

}  // namespace

void TscToWall::set() {
  // The thread may be preempted between the readings of the two clocks, so the closest of several pairs is
  // used.
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

bool PacketCapture::poll(std::uint64_t now_ns) {
  if (over_) return false;
  clock_.set();
  if (!ending_) {
    if (const std::string_view limit = take_frames(); !limit.empty()) end(limit, now_ns);
    if (request_.seconds > 0 && now_ns - started_ns_ >= request_.seconds * kNsPerSecond)
      end("time limit", now_ns);
  }
  const CaptureOutput::Outcome outcome = output_.flush();
  status_.bytes = output_.total();
  status_.dropped = frames_.dropped() + left_;
  if (outcome == CaptureOutput::Outcome::Gone) {
    over_ = true;
    status_.state = segment::CaptureState::Done;
    if (!ending_) copy_text(status_.end, "its reader closed the pipe");
  } else if (ending_ && output_.drained()) {
    finish();
  } else if (ending_ && outcome == CaptureOutput::Outcome::Blocked &&
             now_ns - progress_ns_ > kFlushPatienceNs) {
    fail("The end of the capture was lost, because its output was not read.");
  } else if (outcome == CaptureOutput::Outcome::Progress) {
    progress_ns_ = now_ns;
  }
  return !over_;
}

/// Takes frames from the rings while there is room. Returns the limit that was reached, or an empty string.
std::string_view PacketCapture::take_frames() {
  for (std::uint32_t i = 0; i < kFramesPerTurn && !output_.full(); ++i) {
    if (request_.max_packets > 0 && status_.packets >= request_.max_packets) return "packet limit";
    const rdma::softroce::CapturedFrame* frame = frames_.next();
    if (frame == nullptr) return {};
    const std::size_t block_bytes = pcapng::packet_block_bytes(frame->kept_bytes);
    if (request_.max_bytes > 0 && planned_bytes_ + block_bytes > request_.max_bytes) return "byte limit";
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

// --- The thread that serves requests

namespace {

/// Polling interval for the rings of a capture.
constexpr int kTurnMs = 5;
constexpr int kRequestsPerTurn = 16;

void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

segment::CaptureStatus failed(std::uint64_t id, const char* sentence) {
  segment::CaptureStatus status{.id = id, .state = segment::CaptureState::Failed};
  std::strncpy(status.problem, sentence, sizeof status.problem - 1);
  return status;
}

}  // namespace

CaptureService::CaptureService(segment::Layout& layout, const std::string& path, uid_t control_plane_user,
                               rdma::softroce::Port* port)
    : layout_(layout),
      port_(port),
      inbox_(path, control_plane_user),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw SetupError("No file descriptor is left for captures. Raise the limit of open files.");
  if (port_) frames_ = std::make_unique<rdma::softroce::Capture>(port_->config());
  layout_.capture_status.write({});
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "sluice-capture");
}

CaptureService::~CaptureService() {
  stop_ = true;
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
  if (port_) port_->set_capture(nullptr);
}

void CaptureService::run() {
  block_signals();
  while (!stop_) {
    wait();
    take_requests();
    if (capture_ == nullptr) continue;
    const bool goes_on = capture_->poll(segment::monotonic_ns());
    if (!goes_on) port_->set_capture(nullptr);
    publish(capture_->status());
    if (!goes_on) capture_.reset();
  }
  if (capture_ == nullptr) return;
  port_->set_capture(nullptr);
  capture_->fail("The data plane was stopped during the capture.");
  publish(capture_->status());
  capture_.reset();
}

void CaptureService::wait() {
  pollfd fds[] = {{wake_.get(), POLLIN, 0}, {inbox_.descriptor(), POLLIN, 0}, {-1, 0, 0}};
  if (capture_) {  // poll() always reports the loss of the reader
    const CaptureOutput& output = capture_->output();
    fds[2] = {output.descriptor(), static_cast<short>(output.drained() ? 0 : POLLOUT), 0};
  }
  ::poll(fds, std::size(fds), capture_ ? kTurnMs : -1);
}

void CaptureService::take_requests() {
  for (int i = 0; i < kRequestsPerTurn; ++i) {
    auto received = inbox_.receive();
    if (!received) return;
    if (received->request.action == segment::CaptureAction::Start)
      start(std::move(*received));
    else if (capture_ && (received->request.id == 0 || received->request.id == capture_->status().id))
      capture_->end("stopped", segment::monotonic_ns());
  }
}

void CaptureService::start(segment::CaptureInbox::Received received) {
  // The sender has checked the status, so two senders have sent requests at the same time. The pipe of the
  // second one is closed.
  if (capture_ != nullptr) return;
  const std::uint64_t id = received.request.id;
  try {
    if (!port_)
      throw SetupError(
          "Only the softroce driver supports packet captures. With verbs use the tools of the NIC.");
    capture_ = std::make_unique<PacketCapture>(*frames_, port_->config().name, received.request,
                                               std::move(received.descriptor), rte_get_tsc_hz(),
                                               segment::monotonic_ns());
    port_->set_capture(frames_.get());
    publish(capture_->status());
    log::info("Packet capture {} has started", id);
  } catch (const std::exception& error) {
    publish(failed(id, error.what()));
    received.descriptor.reset();
  }
}

void CaptureService::publish(const segment::CaptureStatus& status) {
  layout_.capture_status.write(status);
  if (status.state == segment::CaptureState::Done)
    log::info("Packet capture {} has ended with {} packets, {} were dropped: {}", status.id, status.packets,
              status.dropped, status.end);
  else if (status.state == segment::CaptureState::Failed)
    log::warn("Packet capture {} failed: {}", status.id, status.problem);
}

}  // namespace sluice::process

namespace sluice::process::pcapng {
namespace {

enum BlockType : std::uint32_t {
  kSection = 0x0A0D0D0A,
  kInterface = 1,
  kInterfaceStatistics = 5,
  kEnhancedPacket = 6,
};
enum Option : std::uint16_t {
  kEnd = 0,
  kPacketFlags = 2,
  kInterfaceName = 2,
  kPacketsReceived = 4,
  kApplication = 4,
  kPacketsDropped = 5,
  kTimeResolution = 9,
};
constexpr std::uint32_t kByteOrder = 0x1A2B3C4D;
constexpr std::uint16_t kEthernet = 1;
constexpr std::uint8_t kNanoseconds = 9;
constexpr std::uint32_t kInbound = 1;
constexpr std::uint32_t kOutbound = 2;
constexpr std::size_t kFrameBytes = 12;  ///< type, and the length before and after the body

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + 3) / 4 * 4;
}

/// Block from its type to its trailing length. Numbers are in the writer's byte order, as the section header
/// declares.
class Block {
 public:
  Block(Bytes& out, BlockType type) : out_(out), start_(out.size()) {
    number(static_cast<std::uint32_t>(type));
    number(std::uint32_t{0});
  }
  ~Block() {
    const auto bytes = static_cast<std::uint32_t>(out_.size() - start_ + sizeof(std::uint32_t));
    std::memcpy(out_.data() + start_ + sizeof(std::uint32_t), &bytes, sizeof bytes);
    number(bytes);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  template <class T>
  void number(T value) {
    raw(&value, sizeof value);
  }
  void time(std::uint64_t ns) {
    number(static_cast<std::uint32_t>(ns >> 32));
    number(static_cast<std::uint32_t>(ns));
  }
  void data(const void* from, std::size_t bytes) {
    raw(from, bytes);
    out_.resize(out_.size() + padded(bytes) - bytes);
  }
  void option(Option code, const void* value, std::size_t bytes) {
    number(static_cast<std::uint16_t>(code));
    number(static_cast<std::uint16_t>(bytes));
    data(value, bytes);
  }
  void end_of_options() { option(kEnd, nullptr, 0); }

 private:
  void raw(const void* from, std::size_t bytes) {
    const auto* at = static_cast<const std::byte*>(from);
    if (bytes > 0) out_.insert(out_.end(), at, at + bytes);
  }
  Bytes& out_;
  const std::size_t start_;
};

}  // namespace

void add_section(Bytes& out, std::string_view application) {
  Block block(out, kSection);
  block.number(kByteOrder);
  block.number(std::uint16_t{1});  // version 1.0
  block.number(std::uint16_t{0});
  block.number(~std::uint64_t{0});  // section length: unknown
  block.option(kApplication, application.data(), application.size());
  block.end_of_options();
}

void add_interface(Bytes& out, std::string_view name, std::uint32_t snap_bytes) {
  Block block(out, kInterface);
  block.number(kEthernet);
  block.number(std::uint16_t{0});
  block.number(snap_bytes);
  block.option(kInterfaceName, name.data(), name.size());
  block.option(kTimeResolution, &kNanoseconds, sizeof kNanoseconds);
  block.end_of_options();
}

void add_packet(Bytes& out, const Packet& packet) {
  Block block(out, kEnhancedPacket);
  block.number(std::uint32_t{0});  // the interface
  block.time(packet.time_ns);
  block.number(static_cast<std::uint32_t>(packet.kept.size()));
  block.number(packet.wire_bytes);
  block.data(packet.kept.data(), packet.kept.size());
  const std::uint32_t flags = packet.outgoing ? kOutbound : kInbound;
  block.option(kPacketFlags, &flags, sizeof flags);
  block.end_of_options();
}

std::size_t packet_block_bytes(std::size_t kept_bytes) {
  return kFrameBytes + 20 + padded(kept_bytes) + 8 + 4;
}

void add_statistics(Bytes& out, std::uint64_t time_ns, std::uint64_t packets, std::uint64_t dropped) {
  Block block(out, kInterfaceStatistics);
  block.number(std::uint32_t{0});
  block.time(time_ns);
  block.option(kPacketsReceived, &packets, sizeof packets);
  block.option(kPacketsDropped, &dropped, sizeof dropped);
  block.end_of_options();
}

std::size_t statistics_block_bytes() {
  return kFrameBytes + 12 + 12 + 12 + 4;
}

}  // namespace sluice::process::pcapng
