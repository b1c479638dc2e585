// SPDX-License-Identifier: Apache-2.0
//
// Arguments of every NFSv3 and NFSACL procedure, with the root's handle put where a handle is wanted.
#include <cstdlib>
#include <cstring>

#include "tests/unit/service/call_harness.h"

using namespace sluice;
using namespace sluice::service::memory;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Exports exports(4u << 20, 500);
  static const Bytes file = exports.create(exports.root(Exports::kPlain), "f");
  if (size < 2) return 0;
  const std::uint32_t procedure = data[0] % 24;
  const bool placed = (data[1] & 1) != 0;
  Bytes arguments(4 + kHandleBytes);
  xdr::store_u32(arguments.data(), kHandleBytes);
  const Bytes handle = (data[1] & 2) != 0 ? file : exports.root(Exports::kPlain);
  std::memcpy(arguments.data() + 4, handle.data(), handle.size());
  if ((data[1] & 4) != 0) arguments.clear();
  arguments.insert(arguments.end(), reinterpret_cast<const std::byte*>(data) + 2,
                   reinterpret_cast<const std::byte*>(data) + size);

  service::Service& target = (data[1] & 8) != 0 ? exports.service().acl_service()
                                                : static_cast<service::Service&>(exports.service());
  TestCall call(ulb::kNfsProgram, procedure, arguments, Bytes{}, false);
  if (placed && procedure == ulb::kNfs3Write) {
    call.set_placed_bytes(arguments.size() >= 4 ? xdr::load_u32(arguments.data() + arguments.size() - 4) : 0);
    if (target.place(call) == service::Placement::Sink && (data[1] & 16) == 0) target.execute(call);
  } else {
    target.execute(call);
    if (call.completions != 1) std::abort();
  }
  target.release(call);
  exports.service().background(0);
  return 0;
}
