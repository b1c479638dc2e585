// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/memory.h"

#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "dataplane/base/setup_error.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint32_t kRegionBits = 12;  ///< of an lkey

}  // namespace

MemoryTable::MemoryTable() {
  if (::getrandom(key_.data(), key_.size(), 0) != static_cast<ssize_t>(key_.size()))
    throw SetupError("Cannot get random numbers for steering tags from the kernel.");
}

MemoryTable::~MemoryTable() {
  for (const auto& bytes : owned_) ::munmap(bytes.data(), bytes.size());
}

/// A keyed function of a counter: who collects tags cannot tell the next one.
std::uint64_t MemoryTable::random() noexcept {
  ++drawn_;
  return siphash(key_, std::as_bytes(std::span(&drawn_, 1)));
}

MemoryRegion MemoryTable::add(std::span<std::byte> bytes) {
  if (regions_.size() >> kRegionBits != 0)
    throw SetupError("Too many memory regions on the softroce device.");
  const auto lkey = static_cast<Lkey>(static_cast<std::uint32_t>(random()) << kRegionBits | regions_.size());
  regions_.push_back({bytes, lkey});
  return regions_.back();
}

MemoryRegion MemoryTable::allocate(std::size_t bytes) {
  const std::size_t rounded = std::max(kPage, (bytes + kPage - 1) / kPage * kPage);
  void* memory =
      ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw SetupError("Cannot get " + std::to_string(rounded >> 20) + " MiB of memory (" +
                     std::strerror(errno) + "): lower the sizes in the configuration.");
  owned_.push_back({static_cast<std::byte*>(memory), rounded});
  return add(owned_.back());
}

MemoryWindow MemoryTable::allocate_window() {
  if (windows_.size() == kMaxWindows)
    throw SetupError("All " + std::to_string(kMaxWindows) +
                     " memory windows of the softroce device are allocated.");
  windows_.emplace_back();
  return {static_cast<std::uint32_t>(windows_.size() - 1)};
}

bool MemoryTable::local_access(const Sge& sge) const noexcept {
  const std::size_t number = static_cast<std::uint32_t>(sge.lkey) & ((1u << kRegionBits) - 1);
  if (number >= regions_.size() || regions_[number].lkey != sge.lkey) return false;
  const auto& bytes = regions_[number].bytes;
  const auto address = reinterpret_cast<std::uintptr_t>(sge.address);
  const auto base = reinterpret_cast<std::uintptr_t>(bytes.data());
  return address >= base && address - base <= bytes.size() && sge.length <= bytes.size() - (address - base);
}

std::optional<Rkey> MemoryTable::bind(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                      AccessFlags access, const QueuePair& owner) noexcept {
  if (window.number >= windows_.size() || windows_[window.number].owner != nullptr ||
      !local_access({bytes.data(), static_cast<std::uint32_t>(bytes.size()), lkey}))
    return std::nullopt;
  auto tag = static_cast<std::uint32_t>(random()) & ~(kMaxWindows - 1);
  if (tag == 0) tag = kMaxWindows;  // no rkey is zero
  const auto rkey = static_cast<Rkey>(tag | window.number);
  windows_[window.number] = {&owner, rkey, access, bytes};
  return rkey;
}

bool MemoryTable::invalidate(Rkey rkey, const QueuePair& owner) noexcept {
  const std::uint32_t number = number_of(rkey);
  if (number >= windows_.size() || windows_[number].owner != &owner || windows_[number].rkey != rkey)
    return false;
  windows_[number] = {};
  return true;
}

void MemoryTable::unbind_all(const QueuePair& owner) noexcept {
  for (Window& window : windows_)
    if (window.owner == &owner) window = {};
}

std::byte* MemoryTable::remote(Rkey rkey, std::uint64_t address, std::uint64_t bytes, AccessFlags needed,
                               const QueuePair& owner) const noexcept {
  const std::uint32_t number = number_of(rkey);
  if (number >= windows_.size()) return nullptr;
  const Window& window = windows_[number];
  if (window.owner != &owner || window.rkey != rkey || (window.access & needed) != needed) return nullptr;
  const std::uint64_t base = reinterpret_cast<std::uintptr_t>(window.bytes.data());
  const std::uint64_t room = window.bytes.size();
  if (address < base || address - base > room || bytes > room - (address - base)) return nullptr;
  return window.bytes.data() + (address - base);
}

}  // namespace sluice::rdma::softroce
