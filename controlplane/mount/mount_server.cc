// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/mount_server.h"

namespace sluice::mount {

MountServer::MountServer(std::uint16_t port, const std::string& rpcbind, const MakeExports& make_exports,
                         events::Journal& journal)
    : service_(port, rpcbind, make_exports(statistics_), statistics_, journal), thread_(service_) {}

}  // namespace sluice::mount
