// SPDX-License-Identifier: Apache-2.0
//
// Rules that clients are judged by, what a rule sees of a client, and what is found of it. The thread of the responder.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/conformance/run.h"
#include "cli/conformance/upper_layer.h"
#include "cli/conformance/v2_conversation.h"
#include "dataplane/rpcrdma/link/private_data.h"
#include "pmd/work_request.h"

namespace sluice::conformance {

/// A connection as its responder sees it.
struct Conversation {
  std::uint32_t number = 0;   ///< counted from one
  std::uint32_t version = 1;  ///< of RPC-over-RDMA that is spoken
  Bytes private_data{};       ///< of the client's request, with the padding of connection management
  std::optional<rpcrdma::PrivateData> client_data{};
  std::uint32_t receive_bytes = 1024;                     ///< what the client was told that it may send
  std::uint32_t segment_bytes = 1u << 20, segments = 16;  ///< the same, in version 2

  std::uint32_t messages = 0;
  std::uint32_t replies = 0;
  /// No call can legally raise the number of unanswered ones beyond `grant`, but `in_flight` of them: those that may have been
  /// sent before a smaller grant was seen.
  std::uint32_t grant = 1;
  std::uint32_t in_flight = 0;
  bool beyond_grant = false;                ///< the message that came last was one call too many
  std::uint32_t too_many = 0;               ///< such calls
  std::uint32_t errors = 0;                 ///< RDMA_ERRORs of the client
  std::vector<std::uint32_t> unanswered{};  ///< XIDs
  bool xid_again = false;                   ///< the message that came last has the XID of an unanswered call
  Version2Conversation v2{};

  std::uint32_t client_receive_bytes() const {
    if (version == 2) return v2.client().receive_bytes;
    return client_data ? client_data->receive_bytes : 1024;
  }
  void count_call(std::uint32_t xid);
  /// Before the reply is sent.
  void count_reply(std::uint32_t xid, std::uint32_t granted);
};

/// A call whose RPC message has been put together.
struct CallSight {
  RpcCall rpc;
  UpperLayer upper;
  std::vector<ReadChunk> chunks;  ///< with their bytes
  bool whole = false;             ///< all positions are inside the message
  bool changed = false;           ///< its memory was not the same when it was read again
  bool again = false;             ///< it was not answered on an earlier connection
  bool old_handles = false;       ///< and has handles of then
  bool same_handles = false;      ///< has a handle of the call with chunks before it
};

/// Puts the call together, from its message and its Read chunks with their bytes.
CallSight see_call(const ClientMessage& message, std::vector<ReadChunk> chunks);

struct Sight {
  const Conversation& at;
  const ClientMessage* message = nullptr;  ///< unless of a connection or a transfer
  const CallSight* call = nullptr;         ///< of a call
  const PropertySet* properties = nullptr;
  rdma::WcOpcode transfer{};  ///< of a transfer of the responder that the client could have made fail
  rdma::WcStatus status{};
};

enum class What : std::uint8_t { Connection, Message, Call, Properties, Transfer };

/// What was found of one rule.
class Finding {
 public:
  explicit Finding(const std::vector<std::string>& recent) : recent_(&recent) {}
  /// The rule applied once more.
  void holds(bool kept, const std::string& wanted);
  Result result(const Test& test, const char* needs, bool strict) const;

 private:
  const std::vector<std::string>* recent_;
  std::uint32_t seen_ = 0;
  std::uint32_t broken_ = 0;
  std::string wanted_;  ///< the first time
  std::vector<std::string> history_{};
};

/// A rule that all messages keep.
struct Rule {
  Test test;
  const char* needs;  ///< "a call with a Read chunk": what has to be seen, or nothing can be said
  What what;
  void (*look)(const Sight& sight, Finding& finding);
};
std::span<const Rule> rules_of_messages();
std::span<const Rule> rules_of_calls();
std::span<const Rule> rules_of_version_2_messages();
std::span<const Rule> rules_of_version_2_calls();
/// For clients of this version.
std::vector<const Rule*> client_rules(std::uint32_t version);

}  // namespace sluice::conformance
