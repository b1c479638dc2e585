// SPDX-License-Identifier: Apache-2.0
//
// A COMPOUND of NFS version 4, call or reply, forward or callback: operations follow each other, and
// everything reported of them lies within the message.
#include <cstdlib>
#include <vector>

#include "dataplane/ulb/nfs4.h"

using namespace sluice;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::vector<std::byte> message(reinterpret_cast<const std::byte*>(data) + 1,
                                       reinterpret_cast<const std::byte*>(data) + size);
  ulb::CompoundWalker walker(message, static_cast<ulb::CompoundWalker::What>(data[0] & 3));
  ulb::CompoundWalker::Operation operation;
  std::size_t end = 0;
  std::uint32_t count = 0;
  while (walker.next(operation)) {
    if (operation.end > message.size() || operation.begin >= operation.end ||
        (count > 0 && operation.begin != end))
      std::abort();
    if (operation.has_item &&
        (operation.item_at < operation.begin || operation.item_at + operation.item_bytes > operation.end))
      std::abort();
    end = operation.end;
    ++count;
  }
  if (walker.complete() && (count != walker.operations() || (count > 0 && end != message.size())))
    std::abort();
  return 0;
}
