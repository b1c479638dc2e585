// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/card_stub.h"

#include <dlfcn.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include <cerrno>

namespace sluice::rdma::conformance {
namespace {

CardStub* stub = nullptr;

/// DPDK's own.
template <typename Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

CardStub::CardStub() {
  stub = this;
}

CardStub::~CardStub() {
  stub = nullptr;
}

bool CardStub::reaches(std::span<const std::byte> memory) const {
  auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t end = at + memory.size();
  while (at < end) {
    auto piece = mapped.upper_bound(at);
    if (piece == mapped.begin()) return false;
    --piece;
    if (piece->first + piece->second <= at) return false;
    at = piece->first + piece->second;
  }
  return true;
}

}  // namespace sluice::rdma::conformance

using sluice::rdma::conformance::original;
using sluice::rdma::conformance::stub;

extern "C" {

const char* rte_bus_name(const rte_bus* bus) {
  return stub != nullptr ? "pci" : original<decltype(rte_bus_name)>("rte_bus_name")(bus);
}

rte_iova_mode rte_eal_iova_mode() {
  if (stub == nullptr) return original<decltype(rte_eal_iova_mode)>("rte_eal_iova_mode")();
  return stub->addresses_are_virtual ? RTE_IOVA_VA : RTE_IOVA_PA;
}

int rte_eth_tx_queue_setup(std::uint16_t port_id, std::uint16_t tx_queue_id, std::uint16_t nb_tx_desc,
                           unsigned int socket_id, const rte_eth_txconf* tx_conf) {
  if (stub != nullptr) stub->tx_rs_thresh = tx_conf != nullptr ? tx_conf->tx_rs_thresh : 0;
  return original<decltype(rte_eth_tx_queue_setup)>("rte_eth_tx_queue_setup")(port_id, tx_queue_id,
                                                                              nb_tx_desc, socket_id, tx_conf);
}

int rte_eth_tx_done_cleanup(std::uint16_t port_id, std::uint16_t queue_id, std::uint32_t) {
  if (stub == nullptr || !stub->frees_when_asked) return -ENOTSUP;
  if (stub->free_sent) stub->free_sent(port_id, queue_id);
  return 0;
}

int rte_dev_dma_map(rte_device*, void* addr, std::uint64_t iova, std::size_t len) {
  const auto at = reinterpret_cast<std::uintptr_t>(addr);
  if (iova != at || stub == nullptr || stub->mapped.size() >= stub->most_mappings) {
    rte_errno = ENOSPC;
    return -1;
  }
  stub->mapped.emplace(at, len);
  return 0;
}

int rte_dev_dma_unmap(rte_device*, void* addr, std::uint64_t, std::size_t len) {
  if (stub == nullptr) return -1;  // a test has failed before its port was closed
  const auto piece = stub->mapped.find(reinterpret_cast<std::uintptr_t>(addr));
  if (piece == stub->mapped.end() || piece->second != len) return -1;
  stub->mapped.erase(piece);
  return 0;
}
}
