// SPDX-License-Identifier: Apache-2.0
//
// Connection properties of version 2 (draft, section 5; rows V2-053 to V2-065): the peer's sets, and host
// authentication of ours. The greeting, our first set, is the link's. One reactor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/link/received_message.h"

namespace sluice::rpcrdma {

class Connection;

/// Hears of a set of properties that can be decoded; `first` is set for the one set that fixes properties 1 to
/// 5 (D2-24). False: there is no room for it now, ask again.
using PropertySink = bool (*)(void* context, Connection& connection, std::span<const std::byte> body,
                              bool first) noexcept;

class Properties {
 public:
  Properties(Link& link, Connection& connection) : link_(link), connection_(connection) {}

  void open() noexcept;
  /// The link is Draining.
  void on_closed() noexcept;
  /// The first set is applied by v2::agree() once the sink has taken it.
  void set_sink(PropertySink sink, void* context) noexcept {
    sink_ = sink;
    sink_context_ = context;
  }

  /// A whole set. False: the sink has no room. A refusal is for the sender.
  bool take(std::span<const std::byte> body, const v2::Header& header, Refusal& refusal) noexcept;
  /// The peer's first set has come.
  bool heard() const noexcept { return heard_; }
  /// What the peer has announced, or the defaults.
  const v2::Parameters& peer() const noexcept { return peer_; }

  /// In as many parts as it takes. False when the set before is still on its way, or without memory.
  bool send_host_authentication(std::span<const std::byte> octets) noexcept;
  /// Sends what could not be sent before.
  void retry() noexcept {
    if (outgoing_ != nullptr) send();
  }
  /// Takes the completion of a Send of properties, also of one that was flushed. `index` is Sender::index of the Send.
  void on_part_sent(std::uint16_t index) noexcept;

 private:
  void send() noexcept;

  Link& link_;
  Connection& connection_;
  PropertySink sink_ = nullptr;
  void* sink_context_ = nullptr;
  v2::Parameters peer_;
  bool heard_ = false;
  std::byte* outgoing_ = nullptr;  ///< host authentication on its way, in LinkContext::assembly
  std::uint32_t outgoing_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::uint32_t posted_ = 0;  ///< Sends of it that are not complete
};

}  // namespace sluice::rpcrdma
