// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/memory.h"

#include <string>

#include "dataplane/base/setup_error.h"

namespace sluice::rdma::softroce {
MemoryWindow MemoryTable::allocate_window() {
  if (windows_.size() == kMaxWindows)
    throw SetupError("All " + std::to_string(kMaxWindows) +
                     " memory windows of the softroce device are allocated.");
  windows_.emplace_back();
  return {static_cast<std::uint32_t>(windows_.size() - 1)};
}

std::optional<Rkey> MemoryTable::bind(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                      AccessFlags access, const QueuePair& owner) noexcept {
  if (window.number >= windows_.size() || windows_[window.number].owner != nullptr ||
      !regions_.covers({bytes.data(), static_cast<std::uint32_t>(bytes.size()), lkey}))
    return std::nullopt;
  auto tag = static_cast<std::uint32_t>(tags_.next()) & ~(kMaxWindows - 1);
  if (tag == 0) tag = kMaxWindows;  // an rkey is never zero
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
