// SPDX-License-Identifier: Apache-2.0
//
// Exports that the MOUNT service offers. Runs on the MOUNT thread; nothing here may block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/mount/poll_set.h"
#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"

namespace sluice::mount {

/// Status codes mountstat3 (RFC 1813, appendix I).
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
  std::vector<std::uint32_t> flavors{1, 0};  ///< authentication flavors by preference: AUTH_SYS, AUTH_NONE
};

/// Source and time of a call.
struct Asker {
  PeerAddress address;
  std::uint64_t now_ns = 0;  ///< monotonic
  bool connected = true;     ///< false for UDP, where the source address can be forged
  PeerAddress local{};       ///< local address that the call was sent to; zero if unknown
  bool privileged = false;   ///< true if the source port is below 1024
};

class Exports {
 public:
  using OnMount = Function<void(const MountAnswer&)>;
  /// Receives the list of paths, or null if it is not available.
  using OnList = Function<void(const std::vector<std::string>*)>;

  virtual ~Exports() = default;
  /// Mounts `path`. Like list(), calls `done` exactly once, before it returns or during a later poll().
  virtual void mount(const std::string& path, const Asker& asker, OnMount done) = 0;
  /// Lists the paths that this client may mount, in the order in which they are shown.
  virtual void list(const Asker& asker, OnList done) = 0;

  virtual void prepare(PollSet&) {}
  virtual void poll(const PollSet&, std::uint64_t /*now_ns*/) {}
};

}  // namespace sluice::mount
