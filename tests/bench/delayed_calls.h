// SPDX-License-Identifier: Apache-2.0
//
// Calls for measurements over a wire with a given delay, and the versions and thresholds with which they are
// made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tests/bench/nfs_calls.h"

namespace sluice::bench {

struct Transport {
  std::string_view name;
  std::uint32_t version = 1;  ///< version of RPC-over-RDMA
  std::uint32_t inline_bytes = 4096;
};
inline constexpr std::array kTransports{Transport{"v1_1k", 1, 1024}, Transport{"v1_4k", 1, 4096},
                                        Transport{"v2", 2, 4096}};

struct DelayedCall {
  Bytes message;  ///< without the data of a WRITE, which follows
  std::uint32_t data_bytes = 0;
  std::uint32_t max_reply_bytes = 0;
  bool has_status = true;  ///< the reply has an NFS status
};

/// Files of the NFS calls, all in one directory, which fills more than one reply of kReplyBytes.
struct DelayedFiles {
  Bytes directory;
  Bytes file;
};
inline constexpr std::uint32_t kLongBytes = 8192;
inline constexpr std::uint32_t kMostWriteBytes = 4096;

/// Creates the files. `transact` sends a call and returns its reply.
DelayedFiles make_files(std::span<const std::byte> root,
                        const std::function<Bytes(const DelayedCall&)>& transact);

struct Work {
  std::string_view name;
  std::vector<DelayedCall> (*calls)(const DelayedFiles& files);  ///< calls made in rotation
};
std::span<const Work> works();

}  // namespace sluice::bench
