// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connector.h"

#include "dataplane/reactor/driver_connector.h"
#include "dataplane/reactor/plane_connector.h"

namespace sluice::reactor {

std::unique_ptr<Connector> make_connector(const ReactorConfig& config, rdma::Device& device,
                                          ConnectionTable& connections, segment::ReactorArea& area,
                                          EventSender& events, Counters& counters) {
  if (rdma::ConnectionManager* const manager = device.connection_manager())
    return std::make_unique<DriverConnector>(config.dial, *manager, events, counters);
  return std::make_unique<PlaneConnector>(config.dial, device, connections, area, events, counters);
}

}  // namespace sluice::reactor
