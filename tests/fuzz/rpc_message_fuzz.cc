// SPDX-License-Identifier: Apache-2.0
//
// Decodes RPC call and reply headers and AUTH_SYS credentials. A call that decodes encodes to the same bytes
// except for pads.
#include <cstdlib>
#include <vector>

#include "dataplane/rpc/message.h"

using namespace sluice;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  xdr::Reader call_reader(bytes);
  rpc::CallHeader call;
  if (rpc::decode_call(call_reader, call) == rpc::CallDecode::Ok) {
    std::vector<std::byte> out(size);
    xdr::Writer writer(out);
    rpc::encode_call(writer, call);
    if (!writer.ok() || writer.position() != call_reader.position()) std::abort();
    rpc::decode_auth_sys(call.credential.body);
  }
  xdr::Reader reply_reader(bytes);
  rpc::decode_reply(reply_reader);
  rpc::decode_auth_sys(bytes);
  return 0;
}
