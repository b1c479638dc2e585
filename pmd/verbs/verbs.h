// SPDX-License-Identifier: Apache-2.0
//
// The verbs driver: reliable connections on a RoCE NIC (or Linux's own rxe) through libibverbs, polled.
// Connection management is somebody else's, by librdmacm (controlplane/cm); queue pairs are made here.
//
// A Device has its own context, protection domain, completion queues and registrations: reactors share
// nothing. When the NIC is taken away, all its queue pairs end, and the Device stays, without it; when the
// NIC comes back, it registers the same memory again. Lkeys are the driver's own for that reason.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pmd/device.h"
#include "pmd/verbs/statistics.h"

namespace sluice::rdma::verbs {

/// Which interface of libibverbs work requests and completions go through.
enum class Interface : std::uint8_t {
  Newest,    ///< ibv_wr_* and ibv_start_poll where the provider has them, and has them right
  Classic,   ///< ibv_post_send and ibv_poll_cq
  Extended,  ///< as Newest, also on devices in software, whose provider takes one piece of memory each
};

struct DeviceConfig {
  std::string device;  ///< such as "mlx5_0"; empty: the first with an active RoCE port
  std::uint8_t port = 1;
  std::uint32_t max_queue_pairs = 128;
  Interface interface = Interface::Newest;
  std::uint32_t shared_receives = 0;          ///< in one queue for all queue pairs; zero: each has its own
  std::uint32_t shared_receive_bytes = 4096;  ///< of each of them: the longest message
};

enum class Condition : std::uint8_t { Up, PortDown, Gone };
const char* to_string(Condition condition) noexcept;

class Verbs : public Device {
 public:
  /// Any one other thread, again and again: looks for asynchronous events, and for a device that has gone or
  /// come back. Makes system calls; what there is to do the reactor does in its next poll().
  virtual void look() noexcept = 0;
  /// The same thread: something is sent to the peer of a queue pair that it does not notice; without an
  /// answer the queue pair goes to Error.
  virtual void probe(QueuePairNumber number) noexcept = 0;
  virtual Condition condition() const noexcept = 0;
  /// As the kernel calls it.
  virtual const std::string& device_name() const noexcept = 0;
  virtual Statistics statistics() const noexcept = 0;
  virtual bool has_extended_posting() const noexcept = 0;
  virtual bool has_extended_polling() const noexcept = 0;
};

/// Setup. SetupError when there is no such device, or it cannot do what it has to.
std::unique_ptr<Verbs> open(const DeviceConfig& config);

/// What an administrator wants to know of a port.
struct PortInfo {
  std::string device;
  std::string provider;  ///< kernel driver
  std::string firmware;
  std::uint8_t port = 1;
  bool active = false;
  bool ethernet = false;
  std::uint32_t active_mtu = 0;        ///< bytes
  std::uint32_t speed_mbps = 0;        ///< zero: not known
  std::vector<PeerAddress> addresses;  ///< its RoCEv2 GIDs, in the table's order
  std::uint32_t max_queue_pairs = 0;
  std::uint32_t max_work_requests = 0;  ///< of one queue pair's queue
  std::uint32_t max_sge = 0;
  std::uint32_t max_completions = 0;  ///< of one completion queue
  std::uint32_t max_reads = 0;        ///< outstanding at one queue pair
  std::uint64_t max_region_bytes = 0;
  std::uint32_t max_windows = 0;
  bool windows = false;              ///< type 2, which the requester side needs
  bool remote_invalidation = false;  ///< Send with Invalidate
  std::string problem;               ///< why Sluice cannot use it; empty: it can
};

/// Setup. Every port of every device; empty where there is none.
std::vector<PortInfo> list_ports();
/// What is to be said where there is none.
std::string no_devices_hint();

}  // namespace sluice::rdma::verbs
