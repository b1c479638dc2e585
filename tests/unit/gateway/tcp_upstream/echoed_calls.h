// SPDX-License-Identifier: Apache-2.0
//
// Calls of a program that is unknown to the gateway, which the upstream answers with their argument, and
// clients that make many of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {

inline Bytes plain(std::uint32_t word = 0) {
  return unknown_call(words({word}));
}
inline Bytes echo(const FakeUpstream::Call& call) {
  return success(call.xid(), words({word_at(call.message, 10)}));
}
inline bool is_null(const FakeUpstream::Call& call) {
  return word_at(call.message, 5) == 0;
}
/// Returns an empty COMPOUND of NFS version 4.0.
inline Bytes empty_compound() {
  return call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, words({0, 1, 0}));
}
/// Returns a client that has been granted all its credits. The upstream no longer answers.
inline LabClient& warmed_client(ForwardLab& lab) {
  LabClient& client = lab.add_client();
  lab.upstream.answer = echo;
  lab.call(client, {.payload = plain(), .max_reply_bytes = 64});
  lab.upstream.answer = nullptr;
  lab.upstream.calls.clear();
  client.finished.clear();
  return client;
}
inline bool all_finished(const LabClient& client) {
  return std::all_of(client.finished.begin(), client.finished.end(),
                     [](const auto& outcome) { return outcome.has_value(); });
}

}  // namespace sluice::tcp_upstream_test
