// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/placed_reply.h"

#include <array>

#include "dataplane/ulb/bindings.h"

namespace sluice::conformance {
namespace {

constexpr std::size_t kMostResults = 16;

/// Where the results of an accepted call begin; zero: there are none.
std::size_t results_at(std::span<const std::byte> reply) {
  xdr::Reader reader(reply);
  reader.u32();
  if (reader.u32() != 1 || reader.u32() != 0) return 0;
  reader.u32();
  reader.opaque(400);
  return reader.u32() == 0 && reader.ok() ? reader.position() : 0;
}

}  // namespace

PlacedReply place_results(const RpcCall& call, std::span<const std::byte> reply, std::size_t chunks) {
  PlacedReply placed{.payload = Bytes(reply.begin(), reply.end()), .results = {}};
  const std::size_t at = results_at(reply);
  const service::Binding* binding = ulb::find_binding(call.program, call.version);
  if (chunks == 0 || at == 0 || call.gss_service > 1 || binding == nullptr ||
      binding->result_items == nullptr)
    return placed;
  std::array<service::Item, kMostResults> items;
  const std::size_t found = binding->result_items(call.procedure, reply.subspan(at), nullptr, items);
  std::size_t kept_from = 0;
  placed.payload.clear();
  for (const service::Item& item : std::span(items).first(std::min({found, chunks, kMostResults}))) {
    append(placed.payload, reply.subspan(kept_from, at + item.offset - kept_from));
    const auto data = reply.subspan(at + item.offset, item.bytes);
    placed.results.emplace_back(data.begin(), data.end());
    kept_from = at + item.offset + padded(item.bytes);
  }
  append(placed.payload, reply.subspan(kept_from));
  return placed;
}

}  // namespace sluice::conformance
