// SPDX-License-Identifier: Apache-2.0
//
// COMPOUNDs for tests: captured from real Linux kernels, and written by hand.
#pragma once

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include "dataplane/ulb/nfs4.h"

namespace sluice::ulb::test {

using Bytes = std::vector<std::byte>;

struct Captured {
  CompoundWalker::What what;
  std::vector<std::uint32_t> operations;  ///< operations according to Wireshark
  Bytes message;
};

/// Returns the COMPOUNDs of a file that tests/golden/captured_compounds.py has made.
inline std::vector<Captured> captured(const char* path) {
  std::vector<Captured> all;
  std::ifstream file(path);
  for (std::string kind, operations, hex; file >> kind >> operations >> hex;) {
    Captured one{kind == "call" ? CompoundWalker::What::Call : CompoundWalker::What::Reply, {}, {}};
    std::istringstream list(operations);
    for (std::string number; std::getline(list, number, ',');)
      one.operations.push_back(static_cast<std::uint32_t>(std::stoul(number)));
    for (std::size_t i = 0; i < hex.size(); i += 2)
      one.message.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
    all.push_back(std::move(one));
  }
  return all;
}

class Writer {
 public:
  Writer& w(std::initializer_list<std::uint32_t> words) {
    for (const std::uint32_t word : words)
      for (int shift = 24; shift >= 0; shift -= 8) bytes_.push_back(static_cast<std::byte>(word >> shift));
    return *this;
  }
  Writer& d(std::uint64_t value) {
    return w({static_cast<std::uint32_t>(value >> 32), static_cast<std::uint32_t>(value)});
  }
  Writer& o(std::size_t bytes) {
    w({static_cast<std::uint32_t>(bytes)});
    bytes_.resize(bytes_.size() + xdr::padded(bytes), std::byte{0xAB});
    return *this;
  }
  /// Appends an opaque with this content, in whole words.
  Writer& o(const Writer& content) {
    w({static_cast<std::uint32_t>(content.bytes_.size())});
    bytes_.insert(bytes_.end(), content.bytes_.begin(), content.bytes_.end());
    return *this;
  }
  Writer& stateid() { return w({1, 2, 3, 4}); }
  Writer& call(std::uint32_t operations, std::uint32_t minor = 2) { return o(0).w({minor, operations}); }
  Writer& reply(std::uint32_t operations) { return w({0}).o(0).w({operations}); }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

/// Returns the first `count` bytes.
inline Bytes prefix(const Bytes& bytes, std::size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Reports the first eligible item as placed by RDMA.
struct FirstPlaced final : service::PlacedResults {
  bool placed(std::size_t index, std::uint32_t) noexcept override { return index == 0; }
  void unreadable() noexcept override {}
};

}  // namespace sluice::ulb::test
