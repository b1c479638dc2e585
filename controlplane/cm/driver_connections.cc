// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/driver_connections.h"

#include <algorithm>

namespace sluice::cm {

void DriverConnections::on_connect_request(std::uint32_t reactor, const segment::Event& event,
                                           std::uint64_t now_ns) {
  policy::Verdict verdict{};
  const std::size_t bytes = std::min<std::size_t>(event.private_data_bytes, rdma::kMaxPrivateData);
  auto answer =
      judge(context_, reactor, event.peer, event.port, {event.private_data, bytes}, verdict, now_ns);
  if (answer) {
    context_.book.admitted(reactor, event.cm_id, event.peer);
    answer->type = segment::CommandType::Accept;
    answer->attributes.remote = event.peer;
  } else {
    answer.emplace().type = segment::CommandType::Reject;
  }
  answer->cm_id = event.cm_id;
  command(reactor, *answer);
}

}  // namespace sluice::cm
