// SPDX-License-Identifier: Apache-2.0
//
// Rules by which clients are judged, the input of a rule, and its findings. Used on the thread of the
// responder.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/conformance/run.h"
#include "cli/conformance/upper_layer.h"
#include "cli/conformance/v2_conversation.h"
#include "dataplane/rpcrdma/link/config.h"
#include "pmd/work_request.h"

namespace sluice::conformance {

/// A connection as seen by its responder.
struct Conversation {
  std::uint32_t number = 0;   ///< counted from one
  std::uint32_t version = 1;  ///< version of RPC-over-RDMA in use
  Bytes private_data{};       ///< private data of the client's request, with the padding of connection
                              ///< management
  std::optional<rpcrdma::PrivateData> client_data{};
  std::uint32_t receive_bytes = 1024;                     ///< size of a Send announced to the client
  std::uint32_t segment_bytes = 1u << 20, segments = 16;  ///< limits of version 2 announced to the client

  std::uint32_t messages = 0;
  std::uint32_t replies = 0;
  /// No call may raise the number of unanswered calls beyond `grant`, except for `in_flight` calls that may
  /// have been sent before the client received a smaller grant.
  std::uint32_t grant = 1;
  std::uint32_t in_flight = 0;
  bool beyond_grant = false;                ///< the latest message was a call beyond the grant
  std::uint32_t too_many = 0;               ///< number of calls beyond the grant
  std::uint32_t errors = 0;                 ///< number of RDMA_ERRORs of the client
  std::vector<std::uint32_t> unanswered{};  ///< XIDs
  bool xid_again = false;                   ///< the latest message has the XID of an unanswered call
  Version2Conversation v2{};

  std::uint32_t client_receive_bytes() const {
    if (version == 2) return v2.client().receive_bytes;
    return client_data ? client_data->receive_bytes : 1024;
  }
  void count_call(std::uint32_t xid);
  /// Counts a reply and the credits that it grants. Call before the reply is sent.
  void count_reply(std::uint32_t xid, std::uint32_t granted);
};

/// A call whose RPC message was assembled.
struct CallSight {
  RpcCall rpc;
  UpperLayer upper;
  std::vector<ReadChunk> chunks;  ///< Read chunks with their bytes
  bool whole = false;             ///< all chunks could be inserted into the message
  bool changed = false;           ///< the memory of a Read chunk changed between two reads
  bool again = false;             ///< retransmission of an unanswered call of a closed connection
  bool old_handles = false;       ///< the retransmission reuses a handle of that call
  bool same_handles = false;      ///< a handle is reused from the previous call with chunks
};

/// Assembles the call from its message and its Read chunks with their bytes.
CallSight see_call(const ClientMessage& message, std::vector<ReadChunk> chunks);

struct Sight {
  const Conversation& at;
  const ClientMessage* message = nullptr;  ///< null for a connection or a transfer
  const CallSight* call = nullptr;         ///< null unless it is a call
  const PropertySet* properties = nullptr;
  rdma::WcOpcode transfer{};  ///< transfer of the responder that the client could have made fail
  rdma::WcStatus status{};
};

enum class What : std::uint8_t { Connection, Message, Call, Properties, Transfer };

/// Findings of one rule.
class Finding {
 public:
  explicit Finding(const std::vector<std::string>& recent) : recent_(&recent) {}
  /// Records one application of the rule.
  void holds(bool kept, const std::string& wanted);
  Result result(const Test& test, const char* needs, bool strict) const;

 private:
  const std::vector<std::string>* recent_;
  std::uint32_t seen_ = 0;
  std::uint32_t broken_ = 0;
  std::string wanted_;  ///< requirement that was broken first
  std::vector<std::string> history_{};
};

/// A rule that applies to all messages.
struct Rule {
  Test test;
  const char* needs;  ///< condition for a verdict, for example "a call with a Read chunk"
  What what;
  void (*look)(const Sight& sight, Finding& finding);
};
std::span<const Rule> rules_of_messages();
std::span<const Rule> rules_of_calls();
std::span<const Rule> rules_of_version_2_messages();
std::span<const Rule> rules_of_version_2_calls();
/// Returns the rules for clients of this version.
std::vector<const Rule*> client_rules(std::uint32_t version);

}  // namespace sluice::conformance
