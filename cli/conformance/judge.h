// SPDX-License-Identifier: Apache-2.0
//
// Judges a client by what its responder observes. It is notified of each connection, message and transfer,
// and applies every rule to it. It sends nothing itself. Runs on the thread of the responder.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/conformance/rule.h"

namespace sluice::conformance {

class Judge {
 public:
  /// Creates a judge of clients that speak this version. Other clients are not judged.
  explicit Judge(std::uint32_t version = 1);
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;

  void connected(Conversation& at, std::span<const std::byte> private_data);
  void came(Conversation& at, const ClientMessage& message);
  /// Judges a call with the bytes of its Read chunks. Call after came() of the same message.
  void assembled_call(const Conversation& at, const ClientMessage& message, CallSight call);
  /// Judges and applies a set of properties. Call after the last part of the message.
  void learned(Conversation& at, const ClientMessage& message, const PropertySet& set);
  /// Counts a reply and the credits that it grants. Call before the reply is sent.
  void answered(Conversation& at, std::uint32_t xid, std::uint32_t granted);
  /// Records a message of the responder. Call before the message is sent.
  void sent(Conversation& at, std::span<const std::byte> message);
  void transferred(const Conversation& at, rdma::WcOpcode opcode, rdma::WcStatus status);
  /// Adds a line to the report.
  void note(const std::string& line);
  void ended(const Conversation& at);

  std::uint32_t version() const { return version_; }
  std::vector<Result> results(bool strict) const;
  const std::vector<std::string>& recent() const { return recent_; }

 private:
  struct OpenCall {
    std::uint32_t xid, program, procedure;
    std::vector<rdma::Rkey> handles;
  };
  static std::optional<OpenCall> extract(std::vector<OpenCall>& calls, std::uint32_t xid);
  void ask(What what, const Sight& sight);

  std::uint32_t version_;
  std::vector<std::string> recent_;
  std::vector<const Rule*> rules_;
  std::vector<Finding> findings_;
  std::vector<OpenCall> open_;  ///< unanswered calls, one per XID
  std::vector<OpenCall> lost_;  ///< unanswered calls of closed connections, one per XID
  std::vector<rdma::Rkey> handles_before_;
};

}  // namespace sluice::conformance
