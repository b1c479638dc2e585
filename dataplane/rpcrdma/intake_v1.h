// SPDX-License-Identifier: Apache-2.0
//
// Intake of version 1: classifies each received message and dispatches it to a role (RFC 8166, section 4).
// Confined to one reactor.
#pragma once

#include <cstdint>
#include <span>

#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/roles.h"
#include "dataplane/rpcrdma/version_choice.h"
#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma {

class IntakeV1 {
 public:
  IntakeV1(Link& link, Roles& roles, VersionChoice& version)
      : link_(link), roles_(roles), version_(version) {}

  /// Handles the completed Receive of a message that does not belong to version 2.
  void arrive(std::uint16_t buffer, std::span<const std::byte> bytes) noexcept;

 private:
  bool usable(const v1::DecodeResult& decoded, const ReceivedMessage& message) noexcept;
  void on_msg(const ReceivedMessage& message) noexcept;

  Link& link_;
  Roles& roles_;
  VersionChoice& version_;
};

}  // namespace sluice::rpcrdma
