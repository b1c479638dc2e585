// SPDX-License-Identifier: Apache-2.0
//
// The exports that MOUNT answers for. One thread, MOUNT's: nothing here may block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/mount/poll_set.h"
#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"

namespace sluice::mount {

/// mountstat3 (RFC 1813, appendix I).
enum class MountStatus : std::uint32_t {
  Ok = 0,
  Perm = 1,
  NoEnt = 2,
  Acces = 13,
  NotDir = 20,
  NameTooLong = 63,
  ServerFault = 10006
};

struct MountAnswer {
  MountStatus status = MountStatus::NoEnt;
  std::vector<std::byte> handle;
  std::vector<std::uint32_t> flavors{1, 0};  ///< of authentication, preferred first: AUTH_SYS, AUTH_NONE
};

/// Who asks, and when.
struct Asker {
  PeerAddress address;
  std::uint64_t now_ns = 0;  ///< monotonic
  bool connected = true;     ///< false: by a datagram, whose source address anybody can write
  PeerAddress local{};       ///< address of ours that the call came to; zero: not known
  bool privileged = false;   ///< the call came from a port below 1024
};

class Exports {
 public:
  using OnMount = Function<void(const MountAnswer&)>;
  /// Null: the list cannot be had.
  using OnList = Function<void(const std::vector<std::string>*)>;

  virtual ~Exports() = default;
  /// Each of these calls its last argument exactly once: before it returns, or during a later turn().
  virtual void mount(const std::string& path, const Asker& asker, OnMount done) = 0;
  /// Paths that are for this client, in the order in which they are shown.
  virtual void list(const Asker& asker, OnList done) = 0;

  virtual void prepare(PollSet&) {}
  virtual void turn(const PollSet&, std::uint64_t /*now_ns*/) {}
};

}  // namespace sluice::mount
