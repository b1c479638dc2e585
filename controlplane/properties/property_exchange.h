// SPDX-License-Identifier: Apache-2.0
//
// The control plane's part in version 2: checks the transport properties that clients send (draft, section
// 5), sends the resulting parameters to reactors, and authenticates hosts. Until then a connection has the
// default parameters. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "controlplane/config/config.h"
#include "controlplane/properties/host_handshake.h"
#include "dataplane/segment/segment.h"

namespace sluice::properties {

struct ExchangeStatistics {
  std::uint64_t sets = 0;
  std::uint64_t clamped = 0;  ///< values out of range
  std::uint64_t authenticated = 0;
  std::uint64_t refused = 0;  ///< did not authenticate, or not in time
  std::uint64_t parts_lost = 0;
  std::uint64_t commands_lost = 0;  ///< command ring full
};

class PropertyExchange {
 public:
  /// `layout` and `config` outlive it. `authentication` is null where hosts cannot authenticate themselves.
  PropertyExchange(segment::Layout& layout, const config::Config& config,
                   std::unique_ptr<HostAuthentication> authentication);

  /// For handshakes that begin from here on.
  void set_authentication(std::unique_ptr<HostAuthentication> authentication) {
    authentication_ = std::move(authentication);
  }

  /// True when a reactor sent something, or something could be sent to one.
  bool poll(std::uint64_t now_ns);
  const ExchangeStatistics& statistics() const { return statistics_; }

 private:
  struct Key {
    std::uint32_t reactor = 0;
    std::uint32_t connection = 0;
    std::uint32_t cm_id = 0;
    bool operator==(const Key&) const = default;
    bool operator<(const Key& other) const {
      return std::tie(reactor, connection, cm_id) < std::tie(other.reactor, other.connection, other.cm_id);
    }
  };
  struct Peer {
    std::unique_ptr<HostHandshake> handshake;
    bool ended = false;   ///< admitted or refused
    bool absent = false;  ///< the last look did not find its connection
    bool forgotten = false;
    std::uint64_t since_ns = 0;
  };
  struct Downward {
    Key to;
    std::vector<std::byte> octets;
    std::size_t sent = 0;
  };

  void on_part(std::uint32_t reactor, const segment::PropertyPart& part);
  void on_set(const Key& from, bool first, std::span<const std::byte> body);
  void on_authentication(const Key& from, std::span<const std::byte> octets);
  bool admit(const Key& connection, std::string_view host);
  void close(const Key& connection);
  bool send_parts();
  void check_held_connections(std::uint64_t now_ns);
  void forget_absent_connections();
  bool command(std::uint32_t reactor, segment::Command command);

  segment::Layout& layout_;
  const config::Config& config_;
  std::unique_ptr<HostAuthentication> authentication_;
  ExchangeStatistics statistics_;
  struct Incoming {
    Key from;
    std::vector<std::byte> body;
  };
  std::array<Incoming, segment::kMaxReactors> incoming_;
  std::map<Key, Peer> peers_;
  std::vector<Downward> downward_;  ///< in order
  std::uint64_t now_ns_ = 0;
  std::uint64_t checked_ns_ = 0;
};

}  // namespace sluice::properties
