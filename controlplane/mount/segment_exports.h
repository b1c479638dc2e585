// SPDX-License-Identifier: Apache-2.0
//
// Exports that the data plane itself serves, as the segment publishes them: paths and permitted clients from
// the configuration in force, root handles from the data plane.
//
// Who asks by TCP or UDP has an address and no name: an export for hosts by name is given to each permitted address. Its
// handle is of no use to others, since the data plane looks at the name with every call.
#pragma once

#include "controlplane/mount/mount_server.h"
#include "dataplane/segment/segment.h"

namespace sluice::mount {

class SegmentExports final : public Exports {
 public:
  /// `layout` outlives it. Only reads; any thread.
  explicit SegmentExports(const segment::Layout& layout) : layout_(layout) {}
  MountAnswer mount(const std::string& path, const PeerAddress& client) override;
  std::vector<std::string> list() override;

 private:
  const segment::Layout& layout_;
};

}  // namespace sluice::mount
