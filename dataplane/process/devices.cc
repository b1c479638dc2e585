// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/devices.h"

#include <cstring>
#include <optional>
#include <string>

#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/log/log.h"
#include "pmd/loopback/fabric.h"
#include "pmd/loopback/loopback.h"
#include "pmd/softroce/softroce.h"
#include "pmd/verbs/verbs.h"

namespace sluice::process {

namespace {

/// Size of a frame buffer in bytes. Frames of af_packet and memif have a fixed size, which does not depend
/// on the MTU of the link, and must fit into a buffer.
constexpr std::uint32_t kFrameBufferBytes = 8192;
/// Additional queue pairs for connections that are being drained while their successors are established.
constexpr std::uint32_t kSpareQueuePairs = 8;
static_assert(segment::kMaxConnections <= rdma::softroce::kMaxQueuePairs);

}  // namespace

std::uint32_t queue_pairs_of_device(const segment::ConfigBlock& config) {
  return smaller_of(config.all_connections() + kSpareQueuePairs, rdma::softroce::kMaxQueuePairs);
}

namespace {

rdma::softroce::PortConfig port_config(const segment::ConfigBlock& config) {
  rdma::softroce::PortConfig port;
  const std::optional<std::uint16_t> ethdev = rdma::softroce::first_ethdev();
  if (!ethdev)
    throw SetupError("DPDK finds no ethdev '" + std::string(config.ethdev) +
                     "'. Check ethdev in [device] of the configuration.");
  port.ethdev = *ethdev;
  port.lanes = config.reactors;
  port.hardware_queues = config.hardware_queues;
  for (std::uint32_t i = 0; i < config.address_count; ++i)
    port.addresses.push_back(
        {config.addresses[i].address, static_cast<std::uint8_t>(config.addresses[i].prefix_bits)});
  for (std::uint32_t i = 0; i < config.gateway_count; ++i) port.gateways.push_back(config.gateways[i]);
  port.vlan = static_cast<std::uint16_t>(config.vlan);
  port.announce = true;
  port.traffic_class = static_cast<std::uint8_t>(config.traffic_class);
  port.service_level = static_cast<std::uint8_t>(config.priority());
  port.cnp_traffic_class = static_cast<std::uint8_t>(config.cnp_traffic_class);
  port.link_mtu = static_cast<std::uint16_t>(config.mtu);
  port.frame_buffer_bytes = kFrameBufferBytes;
  port.card_reads_payload = config.payload_in_place != 0;
  port.max_queue_pairs = queue_pairs_of_device(config);
  return port;
}

void log_steering(const rdma::softroce::Steering& steering) {
  if (steering.rules > 0)
    log::info("{} flow rules of the ethdev steer packets to their reactors", steering.rules);
  else if (!steering.refusal.empty())
    log::info(
        "The ethdev supports no flow rules for queue pairs ({}), so packets for another reactor are handed "
        "over",
        steering.refusal);
}

void log_transmission(const rdma::softroce::Transmission& transmission) {
  if (transmission.in_place)
    log::info("The ethdev sends payload from its place in memory, without a copy");
  else if (!transmission.obstacle.empty())
    log::info("Payload is copied into packets for the ethdev: {}", transmission.obstacle);
}

}  // namespace

bool is_vdev(const segment::ConfigBlock& config) {
  return std::strncmp(config.ethdev, "net_", 4) == 0;
}

Devices::Devices(const segment::ConfigBlock& config) {
  switch (config.driver) {
    case segment::Driver::SoftRoce:
      port_ = rdma::softroce::Port::open(port_config(config));
      log_steering(port_->steering());
      log_transmission(port_->transmission());
      log_notices();
      in_place_ = port_->transmission().in_place;
      return;
    case segment::Driver::Verbs:
      return;
    case segment::Driver::Loopback:
      if (config.reverse.in_use != 0)  // created by the server, on this machine
        fabric_ = rdma::loopback::Fabric::attach(config.loopback_path);
      else
        fabric_ = rdma::loopback::Fabric::create(
            config.loopback_path,
            {.links = config.loopback_links, .arena_bytes = config.loopback_arena_bytes});
      return;
  }
}

Devices::~Devices() = default;

std::unique_ptr<rdma::Device> Devices::make_device(const segment::ConfigBlock& config,
                                                   std::uint32_t reactor) {
  auto made = open(config, reactor);
  made_.push_back(made.get());
  logged_.push_back(rdma::Condition::Up);
  return made;
}

std::unique_ptr<rdma::Device> Devices::open(const segment::ConfigBlock& config, std::uint32_t reactor) {
  switch (config.driver) {
    case segment::Driver::SoftRoce:
      return port_->make_device(reactor);
    case segment::Driver::Loopback:
      break;
    case segment::Driver::Verbs: {
      rdma::verbs::DeviceConfig device{.device = {},
                                       .max_queue_pairs = queue_pairs_of_device(config),
                                       .shared_receives = config.shared_receives,
                                       .shared_receive_bytes = config.inline_bytes};
      if (const segment::VerbsPort* port = config.verbs_port(reactor)) {
        device.device = port->device;
        device.port = static_cast<std::uint8_t>(port->port);
      }
      auto made = rdma::verbs::open(device);
      log::info("Reactor {} polls the RDMA device {}", reactor, made->name());
      return made;
    }
  }
  return rdma::loopback::make_device(
      fabric_, {.name = "loopback" + std::to_string(reactor), .max_queue_pairs = config.all_connections()});
}

void Devices::log_notices() {
  if (!port_) return;
  for (const rdma::softroce::LinkNotice& notice : port_->take_notices()) {
    if (notice.level == rdma::softroce::LinkNotice::Level::Warning)
      log::warn("{}", notice.text);
    else
      log::info("{}", notice.text);
  }
}

void Devices::poll_conditions() {
  if (port_ && in_place_ != port_->transmission().in_place) {
    in_place_ = port_->transmission().in_place;
    log_transmission(port_->transmission());
  }
  for (std::size_t i = 0; i < made_.size(); ++i) {
    made_[i]->handle_events();
    log_notices();
    const rdma::Condition condition = made_[i]->condition();
    if (condition == logged_[i]) continue;
    if (port_ && i > 0) continue;  // all lanes share the port's condition
    logged_[i] = condition;
    switch (condition) {
      case rdma::Condition::Up:
        log::info("The RDMA device {} is up", made_[i]->name());
        break;
      case rdma::Condition::PortDown:
        log::warn("The RDMA device {} has no link. Check cable, switch and peer", made_[i]->name());
        break;
      case rdma::Condition::Gone:
        if (port_)
          log::warn(
              "The RDMA device {} was removed. Connections end unless it returns before their retries are "
              "exhausted",
              made_[i]->name());
        else
          log::warn(
              "The RDMA device {} was removed. Its connections have ended, and Sluice waits until it returns",
              made_[i]->name());
        break;
    }
  }
}

}  // namespace sluice::process
