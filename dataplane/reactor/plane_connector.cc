// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/plane_connector.h"

#include <algorithm>

namespace sluice::reactor {

void PlaneConnector::announce() noexcept {
  if (!unsent_) return;
  for (std::uint16_t number = 0; number < connections_.size(); ++number) {
    ConnectionRecord& record = connections_.record(number);
    if (!record.request_unsent) continue;
    if (!events_.try_send(connect_wanted(number))) return;
    record.request_unsent = false;
  }
  unsent_ = false;
}

void PlaneConnector::forget_announcements() noexcept {
  for (std::uint16_t number = 0; number < connections_.size(); ++number) {
    ConnectionRecord& record = connections_.record(number);
    if (record.outgoing && !record.established) record.request_unsent = unsent_ = true;
  }
}

segment::Event PlaneConnector::connect_wanted(std::uint16_t number) const noexcept {
  const auto data = dial_.private_data();
  const ConnectionRecord& record = connections_.record(number);
  segment::Event event{.type = segment::EventType::ConnectWanted,
                       .connection = number,
                       .incarnation = record.incarnation,
                       .queue_pair = record.queue_pair,
                       .port = record.server_port,
                       .peer = record.server,
                       .local = local_for(device_.addresses(), record.server),
                       .path_mtu = device_.max_path_mtu(),
                       .private_data_bytes = data.size()};
  std::copy(data.begin(), data.end(), event.private_data);
  return event;
}

/// Its requests wait in the control plane.
bool PlaneConnector::take_request(const segment::Command& answer) noexcept {
  if (answer.type != segment::CommandType::Accept) return false;
  ++counters_.connect_requests;
  return true;
}

}  // namespace sluice::reactor
