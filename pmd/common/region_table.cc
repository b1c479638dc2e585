// SPDX-License-Identifier: Apache-2.0
#include "pmd/common/region_table.h"

#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "dataplane/base/setup_error.h"

namespace sluice::rdma {
SteeringTags::SteeringTags() {
  if (::getrandom(key_.data(), key_.size(), 0) != static_cast<ssize_t>(key_.size()))
    throw SetupError("Cannot get random numbers for steering tags from the kernel.");
}

std::size_t page_bytes(std::size_t bytes) noexcept {
  return std::max(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
}

Pages::~Pages() {
  for (const auto& bytes : mapped_) ::munmap(bytes.data(), bytes.size());
}

std::span<std::byte> Pages::allocate(std::size_t bytes) {
  const std::size_t rounded = page_bytes(bytes);
  void* memory =
      ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw SetupError("Cannot allocate " + std::to_string(rounded >> 20) + " MiB of memory (" +
                     std::strerror(errno) + "): configure smaller exports or fewer connections.");
  mapped_.push_back({static_cast<std::byte*>(memory), rounded});
  return mapped_.back();
}

MemoryRegion RegionTable::add(std::span<std::byte> bytes) {
  if (regions_.size() >> kRegionBits != 0)
    throw SetupError("Too many memory regions on the " + device_ + " device.");
  const auto lkey =
      static_cast<Lkey>(static_cast<std::uint32_t>(tags_.next()) << kRegionBits | regions_.size());
  regions_.push_back({bytes, lkey});
  return regions_.back();
}

}  // namespace sluice::rdma
