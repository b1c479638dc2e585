// SPDX-License-Identifier: Apache-2.0
//
// Connections of the verbs driver: the kernel's connection management through librdmacm, queue pairs in the
// data plane. One thread.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "controlplane/cm/channel_offer.h"
#include "controlplane/cm/connections.h"
#include "controlplane/cm/rdma_cm.h"
#include "dataplane/base/setup_error.h"

namespace sluice::cm {

class KernelConnections final : public Connections, private RdmaCm::Host {
 public:
  /// Throws SetupError when this machine has no RDMA. Not while a data plane is running: then it waits for
  /// the device to come back.
  explicit KernelConnections(const ConnectionContext& context);

  bool poll(std::uint64_t now_ns) override;
  void on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;
  void on_connect_wanted(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;
  void restore(std::uint32_t reactor, std::uint32_t number) override;
  void on_open(const SeenConnection& seen, std::uint64_t now_ns) override;
  const AgentStatistics* statistics() const override { return manager_ ? &manager_->statistics() : &none_; }
  bool needs_new_process() const override { return device_removed_; }

 private:
  void on_request(Id id, const RdmaCmPeer& peer) override;
  void on_reply(Id id, const RdmaCmPeer& peer) override;
  void on_established(Id id) override;
  void on_rejected(Id id, const std::string& why, std::span<const std::byte> private_data) override;
  void on_disconnected(Id id) override;
  void disconnect(Id id, std::uint64_t now_ns) override;
  void refuse_unmade(Id id, std::uint64_t now_ns) override;

  static std::unique_ptr<RdmaCm> open(RdmaCm::Host& host, const segment::ConfigBlock& block,
                                      const std::vector<std::uint16_t>& ports);
  void listen_at_new_ports();
  void watch_ends();
  void open_again();
  void on_opened(std::shared_ptr<RdmaCm> manager);
  segment::Command with_state(segment::Command command, const RdmaCmPeer& peer) const;
  std::uint32_t reactors_of(const RdmaCmPeer& peer) const;

  std::shared_ptr<RdmaCm> manager_;  ///< null until there is a device
  const AgentStatistics none_;
  ChannelOffer channel_offer_;
  bool opening_ = false;  ///< by a task
  bool device_removed_ = false;
  std::set<std::uint16_t> ports_taken_;  ///< of new ones, by another server
  std::uint64_t now_ns_ = 0;
  std::uint64_t checked_ns_ = 0;
};

}  // namespace sluice::cm
