// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/link.h"

#include <chrono>
#include <string>

namespace sluice::conformance {
namespace {

/// Of either version: what a server may send without having been told our size, and far more.
constexpr std::uint32_t kReceiveBytes = 8192;
constexpr std::uint32_t kReceives = 256;
/// Polls of the device between two polls of connection management, while a connection lasts.
constexpr std::uint32_t kTurnsPerManager = 64;
/// A request that is lost is repeated after 4.3 s (rdma_cm).
constexpr std::uint64_t kPatienceNs = 30'000'000'000;
/// Servers limit how many connections a client has and makes; one that has ended may count a little longer.
constexpr std::uint64_t kRefusalNs = 8'000'000'000;
constexpr std::uint64_t kBetweenAttemptsNs = 100'000'000;
constexpr std::uint64_t kFarewellNs = 2'000'000'000;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace

Link::Link(rdma::Device& device, rdma::ConnectionManager& manager, std::uint16_t port)
    : device_(device), manager_(manager), port_(port), end_(device, kReceiveBytes, kReceives) {}

Link::~Link() {
  end_.owned_qp.reset();
}

void Link::connect(const std::optional<rpcrdma::PrivateData>& own) {
  const std::uint64_t give_up = now_ns() + kRefusalNs;
  while (!try_connect(own)) {
    if (now_ns() > give_up)
      throw LinkError("The server refused the connection on port " + std::to_string(port_) +
                      ": check the port, and its limits for connections.");
    wait(kBetweenAttemptsNs, [] { return false; });
  }
}

bool Link::try_connect(const std::optional<rpcrdma::PrivateData>& own) {
  disconnect();
  established_ = rejected_ = lost_ = false;
  server_data_.reset();
  end_.forget();
  seen_ = 0;
  end_.owned_qp = end_.make_queue_pair();
  std::array<std::byte, rpcrdma::kPrivateDataBytes> data{};
  if (own) data = rpcrdma::encode_private_data(*own);
  id_ = manager_.connect(*end_.owned_qp, port_,
                         own ? std::span<const std::byte>(data) : std::span<const std::byte>{});
  if (!id_)
    throw LinkError(
        "No connection can be started: all links of the device are in use. End other clients first.");
  wait(kPatienceNs, [this] {
    poll_manager();
    return established_ || rejected_ || lost_;
  });
  if (established_) return true;
  if (!rejected_ && !lost_)
    throw LinkError("The server does not answer on port " + std::to_string(port_) +
                    ": check its address, and that it listens for RDMA.");
  id_.reset();
  return false;
}

void Link::disconnect() {
  if (id_) {
    if (!lost_) manager_.disconnect(*id_);
    wait(kFarewellNs, [this] {
      poll_manager();
      return lost_;
    });
  }
  id_.reset();
  end_.owned_qp.reset();
}

void Link::poll_manager() {
  rdma::CmEvent events[8];
  const std::size_t count = manager_.poll_events(events);
  for (const rdma::CmEvent& event : std::span(events, count)) {
    if (event.id != id_) continue;
    if (event.type == rdma::CmEventType::Rejected) rejected_ = true;
    if (event.type == rdma::CmEventType::Disconnected) lost_ = true;
    if (event.type == rdma::CmEventType::Established) {
      established_ = true;
      server_data_ = rpcrdma::decode_private_data({event.private_data, event.private_data_bytes});
    }
  }
}

void Link::turn() {
  end_.poll();
  if (end_.inbox.size() < seen_) seen_ = 0;
  if (end_.inbox.size() > seen_) arrived(end_.inbox, seen_);
  seen_ = end_.inbox.size();
  if (turns_++ % kTurnsPerManager == 0) poll_manager();
  other_side();
}

const char* Link::why_lost() const {
  return end_.failed ? rdma::to_string(end_.first_error) : "the server ended it";
}

bool Link::wait(std::uint64_t limit_ns, const std::function<bool()>& done) {
  const std::uint64_t end = now_ns() + limit_ns;
  while (!done()) {
    if (now_ns() > end) return false;
    turn();
  }
  return true;
}

}  // namespace sluice::conformance
