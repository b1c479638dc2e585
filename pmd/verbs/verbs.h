// SPDX-License-Identifier: Apache-2.0
//
// The verbs driver: reliable connections on a RoCE NIC (or Linux's rxe) through libibverbs, polled. The
// driver creates the queue pairs; the control plane does connection management with librdmacm
// (controlplane/cm).
//
// Each Device has its own context, protection domain, completion queues and registrations, so reactors share
// nothing. When the NIC is removed, all its queue pairs go to Error and the Device remains without a NIC.
// When the NIC returns, the same memory is registered again. For that reason the driver has its own Lkeys.
//
// Only the owning reactor may call a Device, except where documented. Setup throws SetupError.
#pragma once

#include <cstdint>
#include <string>

#include "pmd/device.h"
#include "pmd/verbs/statistics.h"

namespace sluice::rdma::verbs {

/// libibverbs interface for work requests and completions.
enum class Interface : std::uint8_t {
  Newest,    ///< ibv_wr_* and ibv_start_poll, if the table of providers allows them
  Classic,   ///< ibv_post_send and ibv_poll_cq
  Extended,  ///< ibv_wr_* and ibv_start_poll on every provider that has all functions; for tests
};

struct DeviceConfig {
  std::string device;  ///< for example "mlx5_0"; empty selects the first with an active RoCE port
  std::uint8_t port = 1;
  std::uint32_t max_queue_pairs = 128;
  Interface interface = Interface::Newest;
  std::uint32_t shared_receives = 0;          ///< number shared by all queue pairs; zero means Receives per
                                              ///< queue pair
  std::uint32_t shared_receive_bytes = 4096;  ///< size of each in bytes, which limits the length of a message
  bool windows = true;        ///< false: memory windows are not used although the device has them
  bool call_regions = false;  ///< without memory windows, a region is registered for each call
  /// Time after which a device is broken that has not flushed a queue pair in Error.
  std::uint64_t flush_limit_ns = 10'000'000'000;
};

class Verbs : public Device {
 public:
  /// The kernel's name of the device.
  virtual const std::string& device_name() const noexcept = 0;
  virtual Statistics statistics() const noexcept = 0;
  virtual bool has_extended_posting() const noexcept = 0;
  virtual bool has_extended_polling() const noexcept = 0;
};

/// Setup. Opens a device. Throws SetupError if the device does not exist or lacks a required capability.
Owned<Verbs> open(const DeviceConfig& config);

}  // namespace sluice::rdma::verbs
