// SPDX-License-Identifier: Apache-2.0
//
// A connection of version 2 as its responder counts it: credits both ways, parts of messages, the client's properties. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/conformance/client_message.h"

namespace sluice::conformance {

/// A set of properties, taken apart by hand.
struct PropertySet {
  struct Entry {
    std::uint32_t id = 0;
    Bytes data{};
  };
  std::vector<Entry> entries{};
  std::string defect{};  ///< why it cannot be read; empty: it can
};
PropertySet read_properties(std::span<const std::byte> body);

/// What the client has announced; else the defaults (draft, section 5.2).
struct ClientProperties {
  std::uint32_t send_bytes = 4096;
  std::uint32_t receive_bytes = 4096;
  std::uint32_t reverse = 1;
};

/// A message that comes in parts.
struct Sequence {
  std::uint32_t xid = 0, type = 0;
  bool response = false;
  Bytes joined{};  ///< payload so far, or the body of properties
};

class Version2Conversation {
 public:
  /// A message of the client, before anything is done about it.
  void came(const ClientMessage& message);
  /// A message of the responder, with its credit word.
  void sent(std::span<const std::byte> message);

  /// Joins the parts of a message: the whole, as if it had come in one Send, or nothing before the last part.
  std::optional<ClientMessage> join(ClientMessage part);
  /// The first set alone counts (D2-24).
  void learn(const PropertySet& set);

  /// New credits for the client, in the next message to it, so that it has `window`.
  std::uint32_t offer(std::uint32_t window) const;
  /// Nothing but a grant tells the client of new credits, and it runs short (D2-15).
  bool grant_due(std::uint32_t window) const;
  /// Messages that may be sent to the client; a grant may bring it to -1.
  std::int64_t balance() const { return balance_; }

  std::uint32_t messages() const { return received_; }
  bool has_granted() const { return has_granted_; }
  std::uint32_t errors_sent() const { return errors_sent_; }
  /// Of the message that came last: the client had no credit for it.
  bool beyond_grant() const { return beyond_grant_; }
  /// It is not of the sequence that was in progress.
  bool breaks_sequence() const { return breaks_sequence_; }
  /// It is no later part of a message.
  bool begins() const { return begins_; }
  /// The responder has sent a message with this XID that is no reply: an ERROR may be about it.
  bool has_asked(std::uint32_t xid) const;
  /// The code of the ERROR that the client has sent about it.
  std::optional<std::uint32_t> refusal_of(std::uint32_t xid) const;
  /// Messages without a credit, of all.
  std::uint32_t overdrafts() const { return overdrafts_; }
  /// Octets of the longest message.
  std::size_t longest() const { return longest_; }
  const ClientProperties& client() const { return client_; }
  bool knows_client() const { return sets_ > 0; }

 private:
  struct Refusal {
    std::uint32_t xid, code;
  };
  void asked(std::uint32_t xid);
  void note_refusal(std::uint32_t xid, std::uint32_t code);

  std::uint32_t granted_ = 1;
  std::uint32_t received_ = 0;
  std::int64_t balance_ = 1;
  std::uint32_t errors_sent_ = 0;
  bool has_granted_ = false;  ///< by a message that is no ERROR
  bool beyond_grant_ = false;
  bool breaks_sequence_ = false;
  bool begins_ = true;
  std::optional<Sequence> sequence_{};
  std::vector<std::uint32_t> asked_{};
  std::vector<Refusal> refusals_{};
  std::uint32_t overdrafts_ = 0;
  std::size_t longest_ = 0;
  ClientProperties client_{};
  std::uint32_t sets_ = 0;
};

}  // namespace sluice::conformance
