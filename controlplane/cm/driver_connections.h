// SPDX-License-Identifier: Apache-2.0
//
// Connections of a driver that manages them itself (loopback): reactors report its requests, which are admitted or refused here. One
// thread.
#pragma once

#include "controlplane/cm/connections.h"

namespace sluice::cm {

class DriverConnections final : public Connections {
 public:
  using Connections::Connections;

  void on_connect_request(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) override;

  // The rest is the driver's.
  bool poll(std::uint64_t) override { return false; }
  void on_command_done(std::uint32_t, const segment::Event&, std::uint64_t) override {}
  void on_answer_to_predecessor(std::uint32_t, const segment::Event&) override {}
  void restore(std::uint32_t, std::uint32_t) override {}
  void on_appeared(std::uint32_t, std::uint32_t, const SeenConnection&) override {}
  void on_open(const SeenConnection&, std::uint64_t) override {}

 private:
  void disconnect(Id, std::uint64_t) override {}
  void refuse_unmade(Id, std::uint64_t) override {}
};

}  // namespace sluice::cm
