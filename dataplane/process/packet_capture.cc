// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/packet_capture.h"

#include <cstring>
#include <thread>
#include <utility>

#include "dataplane/base/setup_error.h"

namespace sluice::process {

PacketCapture::PacketCapture(segment::Layout& layout, std::shared_ptr<rdma::softroce::Port> port)
    : layout_(layout), port_(std::move(port)) {
  if (const auto request = layout_.capture_request.read()) last_request_ = request->id;
}

PacketCapture::~PacketCapture() {
  stop();
}

void PacketCapture::poll() {
  const auto request = layout_.capture_request.read();
  if (request && request->id != last_request_) start(*request);
  if (capture_ == nullptr) return;
  write_packets();
  if (max_packets_ > 0 && status_.packets >= max_packets_) return stop();
  layout_.capture_status.write(status_);
}

void PacketCapture::start(const segment::CaptureRequest& request) {
  stop();
  last_request_ = request.id;
  if (request.run == 0) return;
  status_ = {.id = request.id, .state = segment::CaptureState::Running};
  max_packets_ = request.max_packets;
  try {
    if (!port_) throw SetupError("Only the softroce driver has packets to capture.");
    capture_ = std::make_unique<rdma::softroce::Capture>(port_->config(), request.path, request.snap_bytes);
    port_->set_capture(capture_.get());
  } catch (const std::exception& error) {
    status_.state = segment::CaptureState::Failed;
    std::strncpy(status_.problem, error.what(), sizeof status_.problem - 1);
  }
  layout_.capture_status.write(status_);
}

void PacketCapture::stop() {
  if (capture_ == nullptr) return;
  port_->set_capture(nullptr);
  std::this_thread::sleep_for(kLanesLetGo);
  write_packets();
  capture_.reset();
  status_.state = segment::CaptureState::Done;
  layout_.capture_status.write(status_);
}

void PacketCapture::write_packets() {
  status_.packets += capture_->write();
  status_.dropped = capture_->dropped();
}

}  // namespace sluice::process
