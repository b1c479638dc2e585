// SPDX-License-Identifier: Apache-2.0
//
// Exports that the data plane itself serves, as the segment publishes them: paths and permitted clients from
// the configuration in force, root handles from the data plane.
//
// Who asks by TCP or UDP has an address and no name: an export for hosts by name is given to each permitted address. Its
// handle is of no use to others, since the data plane looks at the name with every call.
#pragma once

#include <string>
#include <vector>

#include "controlplane/mount/export_paths.h"
#include "controlplane/mount/exports.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/config_block.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::mount {

/// The part of one of several upstreams, as the configuration in force has it. One that is not there, or removed, has a part
/// that no path is in.
ExportPaths export_paths_of(const segment::Layout& layout, const std::string& upstream);

/// Upstreams with a part of the exports, when the data plane serves what is published; else none.
std::vector<segment::UpstreamConfig> group_in_force(const segment::Layout& layout);

class SegmentExports final : public Exports {
 public:
  /// `layout` outlives it, and is only read. Answers at once.
  explicit SegmentExports(const segment::Layout& layout) : layout_(layout) {}
  void mount(const std::string& path, const Asker& asker, OnMount done) override;
  void list(const Asker& asker, OnList done) override;

 private:
  MountAnswer answer(const std::string& path, const PeerAddress& client);

  const segment::Layout& layout_;
};

}  // namespace sluice::mount
