// SPDX-License-Identifier: Apache-2.0
//
// MOUNT version 3 over TCP and UDP (RFC 1813, appendix I), by libtirpc: NFSv3 clients get the root handle
// here before they connect by RDMA. libtirpc has global state, so there is one server per process.
// It has a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/net_address.h"
#include "dataplane/base/setup_error.h"

namespace sluice::mount {

/// mountstat3.
enum class MountStatus : std::uint32_t { Ok = 0, Perm = 1, NoEnt = 2, Acces = 13, ServerFault = 10006 };

struct MountAnswer {
  MountStatus status = MountStatus::NoEnt;
  std::vector<std::byte> handle;
  std::vector<int> flavors{1, 0};  ///< of authentication, preferred first: AUTH_SYS, AUTH_NONE
};

/// The exports that the server answers for. Called on the server's thread, one call at a time.
class Exports {
 public:
  virtual ~Exports() = default;
  virtual MountAnswer mount(const std::string& path, const PeerAddress& client) = 0;
  /// Paths, in the order in which they are shown.
  virtual std::vector<std::string> list() = 0;
};

class MountServer {
 public:
  /// Listens on `port` (zero: any that is free) and starts the thread. With `use_rpcbind` it registers if
  /// rpcbind runs. Throws SetupError when the port is taken.
  MountServer(std::uint16_t port, bool use_rpcbind, std::unique_ptr<Exports> exports);
  ~MountServer();
  MountServer(const MountServer&) = delete;
  MountServer& operator=(const MountServer&) = delete;

  std::uint16_t port() const;
  bool registered() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::mount
