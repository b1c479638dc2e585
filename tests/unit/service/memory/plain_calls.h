// SPDX-License-Identifier: Apache-2.0
//
// NFSv3 calls with AUTH_NONE as bytes, for tests that run a service in several threads or fibers.
#pragma once

#include <functional>

#include "dataplane/ulb/nfs3.h"
#include "tests/unit/service/memory/call_harness.h"

namespace sluice::service::test {

/// Returns the output of `put`, which has at most `room` bytes.
inline Bytes encoded(const std::function<void(xdr::Writer&)>& put, std::size_t room = 512) {
  Bytes bytes(room);
  xdr::Writer out(bytes);
  put(out);
  bytes.resize(out.position());
  return bytes;
}

/// Executes a call and returns its results; nothing if it was not answered with SUCCESS. `held` runs before
/// the call is released, when a transport would send the reply.
inline Bytes results_of(
    Service& service, std::uint32_t procedure, const Bytes& arguments,
    const std::function<void()>& held = [] {}) {
  static thread_local std::uint32_t last_xid = 0;
  TestCall call;
  call.header().program = ulb::kNfsProgram;
  call.header().version = ulb::kNfs3Version;
  call.header().procedure = procedure;
  call.header().xid = static_cast<rpc::Xid>(++last_xid);
  call.header().credential.flavor = rpc::AuthFlavor::None;
  call.start(arguments);
  call.execute(service);
  held();
  Bytes results = call.accepted() == rpc::AcceptStat::Success ? call.results() : Bytes{};
  call.release(service);
  return results;
}

/// Returns the handle in the results of CREATE, MKDIR or LOOKUP; empty if the call has failed. `optional`
/// says whether a boolean precedes the handle.
inline Bytes handle_in(const Bytes& results, bool optional) {
  xdr::Reader in(results);
  if (in.u32() != 0 || !in.ok()) return {};
  if (optional) in.u32();
  const auto handle = in.opaque(64);
  return {handle.begin(), handle.end()};
}

}  // namespace sluice::service::test
