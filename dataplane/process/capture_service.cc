// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/capture_service.h"

#include <poll.h>
#include <pthread.h>
#include <rte_cycles.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <utility>

#include "dataplane/log/log.h"

namespace sluice::process {
namespace {

/// Between two looks at the rings of a capture.
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
                               std::shared_ptr<rdma::softroce::Port> port)
    : layout_(layout),
      port_(std::move(port)),
      inbox_(path, control_plane_user),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw SetupError("There is no descriptor left for captures: raise the limit of open files.");
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
    const bool goes_on = capture_->turn(segment::monotonic_ns());
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
  if (capture_) {  // that the reader has gone is told unasked
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
  // The sender has looked before: two have asked at the same moment. Who comes second sees its pipe closed.
  if (capture_ != nullptr) return;
  const std::uint64_t id = received.request.id;
  try {
    if (!port_)
      throw SetupError(
          "Only the softroce driver has packets to capture: with verbs use the NIC's own means.");
    capture_ = std::make_unique<PacketCapture>(*frames_, port_->config().name, received.request,
                                               std::move(received.descriptor), rte_get_tsc_hz(),
                                               segment::monotonic_ns());
    port_->set_capture(frames_.get());
    publish(capture_->status());
    log::info("Capture {} of packets begins", id);
  } catch (const std::exception& error) {
    publish(failed(id, error.what()));
    received.descriptor.reset();
  }
}

void CaptureService::publish(const segment::CaptureStatus& status) {
  layout_.capture_status.write(status);
  if (status.state == segment::CaptureState::Done)
    log::info("Capture {} has {} packets, {} were dropped: {}", status.id, status.packets, status.dropped,
              status.end);
  else if (status.state == segment::CaptureState::Failed)
    log::warn("Capture {}: {}", status.id, status.problem);
}

}  // namespace sluice::process
