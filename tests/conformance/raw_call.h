// SPDX-License-Identifier: Apache-2.0
//
// Calls of the test program as a raw client writes them.
#pragma once

#include <initializer_list>

#include "tests/conformance/lab.h"

namespace sluice::conformance {

/// Builds an RPC call of the test program with argument words.
inline Bytes test_call(std::uint32_t xid, std::uint32_t procedure,
                       std::initializer_list<std::uint32_t> arguments = {},
                       std::uint32_t program = kTestProgram) {
  Bytes out = rpc_call(xid, program, 1, procedure);
  append(out, words(arguments));
  return out;
}

/// Returns the accept_stat of an RDMA_MSG reply without chunks.
inline std::uint32_t accept_stat(const Bytes& reply) {
  return word_at(reply, 7 + 5);
}

}  // namespace sluice::conformance
