// SPDX-License-Identifier: Apache-2.0
//
// Sums up by client what the connections of all reactors show to have been served, and publishes the busiest clients. What a
// connection was served after the last look at it, and before another one came in its place, is not counted. The control
// plane's thread, in a turn.
#pragma once

#include <cstdint>
#include <vector>

#include "controlplane/clients/client_book.h"
#include "dataplane/segment/client_table.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::clients {

class ClientWatch {
 public:
  /// `layout` outlives it. Begins with what is shown from now on.
  ClientWatch(segment::Layout& layout, std::uint32_t reactors, std::uint32_t connections);

  /// Looks at all connections once a second.
  void poll(std::uint64_t now_ns);

 private:
  struct Seen {
    std::uint32_t incarnation = 0;
    segment::ServedCalls served;
  };
  void look(std::uint32_t reactor, std::uint32_t number, bool counts);

  segment::Layout& layout_;
  const std::uint32_t reactors_;
  const std::uint32_t connections_;
  std::vector<Seen> seen_;
  ClientBook book_;
  std::uint64_t looked_ns_ = 0;
  std::uint32_t looks_ = 0;
};

}  // namespace sluice::clients
