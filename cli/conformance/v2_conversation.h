// SPDX-License-Identifier: Apache-2.0
//
// State of a version 2 connection at its responder: credits of both directions, parts of messages, the
// client's properties. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/conformance/client_message.h"

namespace sluice::conformance {

/// A set of properties, parsed by hand.
struct PropertySet {
  struct Entry {
    std::uint32_t id = 0;
    Bytes data{};
  };
  std::vector<Entry> entries{};
  std::string defect{};  ///< reason why the set cannot be read; empty if it can
};
PropertySet read_properties(std::span<const std::byte> body);

/// Properties that the client has announced, initially the defaults (draft, section 5.2).
struct ClientProperties {
  std::uint32_t send_bytes = 4096;
  std::uint32_t receive_bytes = 4096;
  std::uint32_t reverse = 1;
};

/// A message that arrives in parts.
struct Sequence {
  std::uint32_t xid = 0, type = 0;
  bool response = false;
  Bytes joined{};  ///< payload so far, or the body of properties
};

class Version2Conversation {
 public:
  /// Counts a message of the client. Call before the message has any other effect.
  void came(const ClientMessage& message);
  /// Counts a message of the responder and the credits in its credit word.
  void sent(std::span<const std::byte> message);

  /// Joins the parts of a message. Returns the whole message, as if it had arrived in one Send, or nullopt
  /// before the last part.
  std::optional<ClientMessage> join(ClientMessage part);
  /// Applies a set of properties. Only the first set counts (D2-24).
  void learn(const PropertySet& set);

  /// Returns the new credits for the next message to the client, so that the client has `window` credits.
  std::uint32_t offer(std::uint32_t window) const;
  /// Reports whether a grant is necessary, because the client runs short of credits and no other message
  /// conveys new ones (D2-15).
  bool grant_due(std::uint32_t window) const;
  /// Returns the number of messages that may be sent to the client. A grant may reduce it to -1.
  std::int64_t balance() const { return balance_; }

  std::uint32_t messages() const { return received_; }
  bool has_granted() const { return has_granted_; }
  std::uint32_t errors_sent() const { return errors_sent_; }
  /// Reports whether the client had no credit for its latest message.
  bool beyond_grant() const { return beyond_grant_; }
  /// Reports whether the latest message does not belong to the sequence in progress.
  bool breaks_sequence() const { return breaks_sequence_; }
  /// Reports whether the latest message is not a later part of a message.
  bool begins() const { return begins_; }
  /// Reports whether the responder has sent a message with this XID that is not a reply. An ERROR may refer
  /// to it.
  bool has_asked(std::uint32_t xid) const;
  /// Returns the code of the client's ERROR about this XID.
  std::optional<std::uint32_t> refusal_of(std::uint32_t xid) const;
  /// Returns the number of the client's messages for which it had no credit.
  std::uint32_t overdrafts() const { return overdrafts_; }
  /// Returns the size of the client's longest message in octets.
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
  bool has_granted_ = false;  ///< the responder has granted credits by a message other than ERROR
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
