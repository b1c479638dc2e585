// SPDX-License-Identifier: Apache-2.0
//
// Connection properties of version 2 (draft, section 5; rows V2-053 to V2-065): receives the peer's sets and
// sends host authentication. The link sends the greeting, which is our first set. Confined to one reactor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/link/received_message.h"

namespace sluice::rpcrdma {

class Connection;

/// Receives each set of properties that can be decoded. `first` is true for the only set that determines
/// properties 1 to 5 (D2-24). Returns false if the sink has no room; the caller retries.
using PropertySink = bool (*)(void* context, Connection& connection, std::span<const std::byte> body,
                              bool first) noexcept;

class Properties {
 public:
  Properties(Link& link, Connection& connection) : link_(link), connection_(connection) {}

  void open() noexcept;
  /// Called when the link is Draining.
  void on_closed() noexcept;
  /// Sets the sink. The peer's first set is applied by v2::agree() once the sink has accepted it.
  void set_sink(PropertySink sink, void* context) noexcept {
    sink_ = sink;
    sink_context_ = context;
  }

  /// Handles a complete set. Returns false if the sink has no room. On return of true, `refusal` may hold an
  /// error for the sender.
  bool take(std::span<const std::byte> body, const v2::Header& header, Refusal& refusal) noexcept;
  /// Returns true if the peer's first set has been received.
  bool heard() const noexcept { return heard_; }
  /// Returns the properties that the peer has announced, or the defaults.
  const v2::Parameters& peer() const noexcept { return peer_; }

  /// Sends host authentication, in as many parts as necessary. Returns false if the previous one is still
  /// being sent, or if no memory is available.
  bool send_host_authentication(std::span<const std::byte> octets) noexcept;
  /// Continues a send that had to wait.
  void retry() noexcept {
    if (outgoing_ != nullptr) send();
  }
  /// Handles the completion of a Send of properties, including a flushed one. `index` is the Sender::index of
  /// the Send.
  void on_part_sent(std::uint16_t index) noexcept;

 private:
  void send() noexcept;

  Link& link_;
  Connection& connection_;
  PropertySink sink_ = nullptr;
  void* sink_context_ = nullptr;
  v2::Parameters peer_;
  bool heard_ = false;
  std::byte* outgoing_ = nullptr;  ///< host authentication being sent, in LinkContext::assembly
  std::uint32_t outgoing_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::uint32_t posted_ = 0;  ///< its Sends that are not complete
};

}  // namespace sluice::rpcrdma
