// SPDX-License-Identifier: Apache-2.0
//
// /healthz and /readyz on the exporter's web server: status 200 or 503, and a line that says why.
#pragma once

#include <CivetServer.h>

#include "dataplane/segment/segment.h"

namespace sluice::telemetry {

/// prometheus::Exposer has no place for pages of others, but takes callbacks for its web server, civetweb, which have no
/// argument of ours. While this object exists, a server that is started on its thread with its callbacks() gets the
/// pages; later it is not needed.
class HealthPages {
 public:
  /// `layout` has to outlive the server.
  explicit HealthPages(const segment::Layout& layout) noexcept;
  ~HealthPages();
  HealthPages(const HealthPages&) = delete;
  HealthPages& operator=(const HealthPages&) = delete;

  const CivetCallbacks* callbacks() const noexcept { return &callbacks_; }

 private:
  CivetCallbacks callbacks_;
};

}  // namespace sluice::telemetry
