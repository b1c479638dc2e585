// SPDX-License-Identifier: Apache-2.0
//
// Control plane part of version 2. Validates the transport properties that clients send (draft, section 5),
// writes the resulting parameters as desired state of the connection, and authenticates hosts. A connection
// uses the default parameters until they are set. Single-threaded.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "controlplane/properties/host_handshake.h"
#include "dataplane/rpcrdma/v2/agreement.h"
#include "dataplane/segment/messages.h"
#include "dataplane/segment/tables.h"

namespace sluice {
namespace config {
struct Config;
}
namespace cm {
class Outbox;
}
namespace events {
class Journal;
}
namespace segment {
struct Layout;
class DesiredStateWriter;
}  // namespace segment
}  // namespace sluice

namespace sluice::properties {

struct ExchangeStatistics {
  std::uint64_t sets = 0;
  std::uint64_t clamped = 0;  ///< values out of range that were clamped
  std::uint64_t authenticated = 0;
  std::uint64_t refused = 0;  ///< hosts that failed to authenticate or did not do so in time
  std::uint64_t parts_lost = 0;
};

class PropertyExchange {
 public:
  /// All referenced objects outlive this object. `authentication` is null if hosts cannot authenticate
  /// themselves.
  PropertyExchange(segment::Layout& layout, const config::Config& config, cm::Outbox& outbox,
                   std::unique_ptr<HostAuthentication> authentication, events::Journal& journal);

  /// Sets the method for handshakes that begin later.
  void set_authentication(std::unique_ptr<HostAuthentication> authentication) {
    authentication_ = std::move(authentication);
  }

  /// Processes messages from and to reactors. Returns true if any message was received or sent.
  bool poll(std::uint64_t now_ns);
  const ExchangeStatistics& statistics() const { return statistics_; }

 private:
  struct Key {
    std::uint32_t reactor = 0;
    std::uint32_t connection = 0;
    std::uint32_t incarnation = 0;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Peer {
    std::unique_ptr<HostHandshake> handshake;
    bool ended = false;   ///< set once the peer is admitted or refused
    bool absent = false;  ///< set if the last check did not find the connection
    bool forgotten = false;
    std::uint64_t since_ns = 0;
  };
  void on_part(std::uint32_t reactor, const segment::PropertyPart& part);
  void on_set(const Key& from, bool first, std::span<const std::byte> body);
  void on_authentication(const Key& from, std::span<const std::byte> octets);
  void admit(const Key& connection, std::string_view host);
  void close(const Key& connection);
  void report_refusal(const Key& connection, const char* reason);
  void send(const Key& to, std::span<const std::byte> octets);
  void want_parameters(const Key& of, const rpcrdma::v2::Parameters& peer, std::uint32_t max_send_bytes);
  void check_next_reactor();
  void check_connections(std::uint32_t reactor);
  void check_held(const Key& connection, std::uint64_t now_ns);
  void forget_absent_connections();
  segment::DesiredStateWriter wanted(const Key& of);

  segment::Layout& layout_;
  const config::Config& config_;
  cm::Outbox& outbox_;
  events::Journal& journal_;
  std::unique_ptr<HostAuthentication> authentication_;
  ExchangeStatistics statistics_;
  struct Incoming {
    Key from;
    std::vector<std::byte> body;
  };
  std::array<Incoming, segment::kMaxReactors> incoming_;
  std::map<Key, Peer> peers_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t checked_ns_ = 0;  ///< time at which the last round of checks began
  std::uint32_t next_to_check_;   ///< reactor to check next; the number of reactors: the round has ended
};

}  // namespace sluice::properties
