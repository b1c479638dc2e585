// SPDX-License-Identifier: Apache-2.0
//
// MOUNT version 3 over TCP and UDP (RFC 1813, appendix I), by libtirpc: NFSv3 clients ask it before they use
// RDMA. libtirpc keeps its state in the process, so there is one server at a time; it runs in a thread of its
// own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  std::vector<int> flavors{1, 0};  ///< of authentication: AUTH_SYS, AUTH_NONE
};

/// What the server asks; called on its thread.
struct Exports {
  std::function<MountAnswer(const std::string& path, const PeerAddress& client)> mount;
  std::function<std::vector<std::string>()> list;
};

class MountServer {
 public:
  /// Throws SetupError when the port cannot be had. With `use_rpcbind` it registers where rpcbind runs.
  MountServer(std::uint16_t port, bool use_rpcbind, Exports exports);
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
