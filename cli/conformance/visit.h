// SPDX-License-Identifier: Apache-2.0
//
// State of a connection in the responder, in addition to the part that provocations see (Visit). For the
// responder's .cc files only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "cli/conformance/raw_endpoint.h"
#include "cli/conformance/responder.h"
#include "cli/conformance/upstream.h"
#include "pmd/connection_manager.h"

namespace sluice::conformance {

// Errors of version 1 (RFC 8166, 4.5).
inline constexpr std::uint32_t kErrVers = 1;
inline constexpr std::uint32_t kErrChunk = 2;

/// A message that may have to wait for a credit of the client.
struct Outgoing {
  Bytes bytes;
  rdma::Rkey invalidate{};
  bool as_it_is = false;  ///< sent with the credit word that it has
};

struct ServedVisit final : Visit {
  explicit ServedVisit(std::unique_ptr<RawEndpoint> own) : end(std::move(own)) {}
  std::unique_ptr<RawEndpoint> end;
  rdma::CmId id{};
  std::unique_ptr<Upstream> upstream;
  std::deque<ClientMessage> calls{};     ///< calls whose Read chunks were not read yet
  std::deque<Bytes> replies{};           ///< replies of the upstream
  std::vector<std::uint32_t> reverse{};  ///< XIDs of the upstream's calls
  std::deque<Outgoing> outbox{};         ///< version 2
  std::size_t posted = 0;                ///< work requests without a completion
};
inline ServedVisit& served(Visit& visit) {
  return static_cast<ServedVisit&>(visit);
}

}  // namespace sluice::conformance
