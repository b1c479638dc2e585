// SPDX-License-Identifier: Apache-2.0
//
// Procedures of MOUNT version 3 (RFC 1813, appendix I; RFC 5531), independent of the transport.
// Single-threaded; runs on the MOUNT thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "controlplane/mount/call_handler.h"
#include "controlplane/mount/exports.h"
#include "controlplane/mount/statistics.h"
#include "dataplane/rpc/message.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::events {
class Journal;
}

namespace sluice::mount {

class Procedures final : public CallHandler {
 public:
  /// All referenced objects outlive this object.
  Procedures(Exports& exports, MountStatistics& statistics, events::Journal& journal)
      : exports_(exports), statistics_(statistics), journal_(journal) {}

  bool answer(std::span<const std::byte> call, const Asker& asker, std::size_t max_reply_bytes,
              const Reply& reply) override;

 private:
  void mount(rpc::Xid xid, xdr::Reader arguments, const Asker& asker, const Reply& reply);
  void list(rpc::Xid xid, const Asker& asker, std::size_t max_reply_bytes, const Reply& reply);

  void refused(const std::string& path, const Asker& asker);

  Exports& exports_;
  MountStatistics& statistics_;
  events::Journal& journal_;
};

}  // namespace sluice::mount
