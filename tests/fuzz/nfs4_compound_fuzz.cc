// SPDX-License-Identifier: Apache-2.0
//
// Parses a COMPOUND of NFS version 4: call or reply, forward or callback. Operations follow each other, and
// everything reported of them lies within the message. Sizes that a reply announces are lowered in place.
// Requests for, and offers of, paths that bypass a gateway (pNFS, referrals) are removed; removing them again
// changes nothing, and operations keep their boundaries.
#include <cstdlib>
#include <vector>

#include "dataplane/ulb/nfs4.h"

using namespace sluice;

namespace {

using What = ulb::CompoundWalker::What;

std::vector<std::size_t> ends_of(const std::vector<std::byte>& message, What what) {
  ulb::CompoundWalker walker(message, what);
  ulb::CompoundWalker::Operation operation;
  std::vector<std::size_t> ends;
  while (walker.next(operation)) ends.push_back(operation.end);
  return ends;
}

/// Checks that `change` works in place, keeps the boundaries of the operations, and changes nothing when it
/// is applied again. An unknown operation of a call becomes the last operation.
template <typename Change>
void check_change(const std::vector<std::byte>& message, What what, const Change& change) {
  std::vector<std::byte> changed = message;
  change(changed);
  auto ends = ends_of(message, what);
  const auto unknown =
      what == What::Call ? ulb::unknown_nfs4_operation_at(ulb::kNfs4Compound, message) : std::nullopt;
  if (unknown) ends.push_back(*unknown + xdr::kUnit);
  if (ends_of(changed, what) != ends) std::abort();
  std::vector<std::byte> again = changed;
  change(again);
  if (again != changed) std::abort();
}

void check_changes(const std::vector<std::byte>& message) {
  constexpr service::CarriedSizes kMost{.data_bytes = 1 << 20, .message_bytes = 2 << 20};
  check_change(message, What::Reply, [&](auto& bytes) { ulb::cap_nfs4_sizes(bytes, kMost, nullptr); });
  for (const service::Withheld& withheld : {service::Withheld{}, {.pnfs = false}, {.referrals = false}}) {
    check_change(message, What::Call,
                 [&](auto& bytes) { ulb::change_nfs4_call(ulb::kNfs4Compound, bytes, withheld); });
    check_change(message, What::Reply,
                 [&](auto& bytes) { ulb::withhold_in_nfs4_results(bytes, withheld, nullptr); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::vector<std::byte> message(reinterpret_cast<const std::byte*>(data) + 1,
                                       reinterpret_cast<const std::byte*>(data) + size);
  ulb::CompoundWalker walker(message, static_cast<What>(data[0] & 3));
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
  static_cast<void>(ulb::nfs4_has_session(ulb::kNfs4Compound, message));
  static_cast<void>(ulb::nfs4_refuses_connection(message));
  static_cast<void>(ulb::nfs4_announces_sizes(ulb::kNfs4Compound, message));
  check_changes(message);
  return 0;
}
