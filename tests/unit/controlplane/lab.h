// SPDX-License-Identifier: Apache-2.0
//
// Shared by tests of the control plane: each test has its own segment, in which it plays the data plane.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "controlplane/config/config.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/segment.h"

namespace sluice::lab {

inline constexpr std::uint64_t kSecondNs = 1'000'000'000;

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Returns the address of a client. Numbers below 2^24 have distinct addresses.
inline PeerAddress peer(std::uint32_t number) {
  return PeerAddress::from_ipv4(10, static_cast<std::uint8_t>(number >> 16),
                                static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number));
}
inline PeerAddress client(std::uint8_t last) {
  return PeerAddress::from_ipv4(192, 0, 2, last);
}

/// Returns a configuration of softroce on one reactor, with the address 192.0.2.1.
inline config::Config configuration(const std::string& more = "") {
  return config::parse(
      "[transport]\ncredits = 64\nmax_connections = 300\n[device]\ndriver = \"softroce\"\nethdev = \"x\"\n"
      "addresses = [\"192.0.2.1/24\"]\n" +
          more,
      "test");
}

/// A segment for one test of this process, removed with the object.
class TestSegment {
 public:
  explicit TestSegment(const std::string& purpose)
      : name_("sluice-" + purpose + "-test-" + std::to_string(::getpid())) {
    segment::Segment::remove(name_);
    segment_ = segment::Segment::open_or_create(name_);
  }
  ~TestSegment() { segment::Segment::remove(name_); }
  TestSegment(const TestSegment&) = delete;
  TestSegment& operator=(const TestSegment&) = delete;

  segment::Layout& layout() { return segment_->layout(); }

  /// Publishes connection `number` of reactor 0 like a reactor. Its cm_id is 1000 + number. A connection that
  /// follows another one in its slot has a new incarnation if the slot was Unused in between.
  void publish(std::uint32_t number, const PeerAddress& peer, std::uint32_t client_class,
               std::uint32_t granted, segment::ConnectionState state = segment::ConnectionState::Open,
               std::string_view host = {}) {
    segment::ConnectionUse& use = layout().reactors[0].use[number];
    use.open = state == segment::ConnectionState::Unused ? 0 : segment::ConnectionUse::kOfClient;
    use.granted = granted;
    segment::ConnectionInfo info;
    info.state = state;
    info.cm_id = 1000 + number;
    info.incarnation = incarnation(number);
    if (info.incarnation == 0 && state != segment::ConnectionState::Unused)
      info.incarnation = ++layout().reactors[0].incarnations;
    if (state == segment::ConnectionState::Unused) info = {};
    info.client_class = client_class;
    info.peer = peer;
    info.host = HostName(host);
    layout().reactors[0].connections[number].write(info);
  }

  /// Returns the incarnation of a connection; zero if it does not exist.
  std::uint32_t incarnation(std::uint32_t number) {
    return layout().reactors[0].connections[number].read().value_or(segment::ConnectionInfo{}).incarnation;
  }
  /// Returns the desired state of connection `number`.
  segment::DesiredState course(std::uint32_t number) {
    return segment::DesiredStateWriter(layout().reactors[0].wanted).course(number, incarnation(number));
  }
  segment::Grant grant(std::uint32_t number) {
    return segment::DesiredStateWriter(layout().reactors[0].wanted).grant(number, incarnation(number));
  }

 private:
  const std::string name_;
  Owned<segment::Segment> segment_;
};

}  // namespace sluice::lab
