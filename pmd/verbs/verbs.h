// SPDX-License-Identifier: Apache-2.0
//
// The verbs driver: reliable connections on a RoCE NIC (or Linux's rxe) through libibverbs, polled. Queue
// pairs are created here; connection management is done with librdmacm by the control plane
// (controlplane/cm).
//
// Each Device has its own context, protection domain, completion queues and registrations: reactors share
// nothing. When the NIC is removed, all its queue pairs go to Error and the Device remains without it; when
// the NIC comes back, the same memory is registered again. For that reason the driver has Lkeys of its own.
//
// Only the owning reactor may call a Device, except where documented. Setup throws SetupError.
#pragma once

#include <cstdint>
#include <string>

#include "pmd/device.h"
#include "pmd/verbs/statistics.h"

namespace sluice::rdma::verbs {

/// The libibverbs interface used for work requests and completions.
enum class Interface : std::uint8_t {
  Newest,    ///< ibv_wr_* and ibv_start_poll, if the provider has a correct implementation
  Classic,   ///< ibv_post_send and ibv_poll_cq
  Extended,  ///< as Newest, also on software devices, whose provider supports only one Sge each
};

struct DeviceConfig {
  std::string device;  ///< for example "mlx5_0"; empty: the first with an active RoCE port
  std::uint8_t port = 1;
  std::uint32_t max_queue_pairs = 128;
  Interface interface = Interface::Newest;
  std::uint32_t shared_receives = 0;          ///< shared by all queue pairs; zero: per queue pair
  std::uint32_t shared_receive_bytes = 4096;  ///< size of each: the longest message
};

class Verbs : public Device {
 public:
  /// The kernel's name of the device.
  virtual const std::string& device_name() const noexcept = 0;
  virtual Statistics statistics() const noexcept = 0;
  virtual bool has_extended_posting() const noexcept = 0;
  virtual bool has_extended_polling() const noexcept = 0;
};

/// Setup. Throws SetupError: no such device, or it lacks a required capability.
Owned<Verbs> open(const DeviceConfig& config);

}  // namespace sluice::rdma::verbs
