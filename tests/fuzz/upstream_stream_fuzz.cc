// SPDX-License-Identifier: Apache-2.0
//
// Reads the stream of an upstream, split at any offset. Records come out as they are in the stream, and all
// eligible items that bindings find lie within them.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "dataplane/rpc/message.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/ulb/bindings.h"

using namespace sluice;

namespace {

constexpr std::size_t kBuffer = 128;
constexpr std::uint32_t kLongest = 1024;

using Bytes = std::vector<std::byte>;

/// Reference implementation without buffering. Stops at a record that is invalid or has too many empty
/// fragments. Returns only the first word of a record that is too long.
std::vector<Bytes> records_of(std::span<const std::byte> stream) {
  std::vector<Bytes> records;
  Bytes record;
  std::uint32_t empty_fragments = 0;
  while (stream.size() >= 4) {
    const std::uint32_t mark = xdr::load_u32(stream.data());
    const std::size_t bytes = mark & 0x7fffffff;
    if (bytes == 0) ++empty_fragments;
    if (empty_fragments > tcp::kMaxEmptyFragments || record.size() + bytes > tcp::kMaxSkippedBytes) break;
    if (stream.size() - 4 < bytes) break;
    record.insert(record.end(), stream.begin() + 4, stream.begin() + 4 + static_cast<std::ptrdiff_t>(bytes));
    stream = stream.subspan(4 + bytes);
    if ((mark & 0x80000000) == 0) continue;
    if (record.size() > kLongest) record.resize(4);
    records.push_back(std::move(record));
    record.clear();
    empty_fragments = 0;
  }
  return records;
}

/// Reports every second item as placed in a chunk.
struct EverySecond final : service::PlacedResults {
  bool placed(std::size_t index, std::uint32_t) noexcept override { return index % 2 == 0; }
  void unreadable() noexcept override {}
};

void check_items(const service::Binding& binding, std::span<const std::byte> encoded) {
  std::array<service::Item, 8> items;
  std::array<std::uint32_t, 8> most_bytes;
  EverySecond taken_out;
  const std::size_t procedures = std::max<std::size_t>(binding.procedures.size(), 2);
  for (std::uint32_t procedure = 0; procedure < procedures; ++procedure) {
    for (int way = 0; way < 3; ++way) {
      std::size_t count = 0;
      if (way == 0 && binding.argument_items != nullptr)
        count = binding.argument_items(procedure, encoded, items);
      else if (way > 0 && binding.result_items != nullptr)
        count = binding.result_items(procedure, encoded, way == 1 ? nullptr : &taken_out, items);
      if (count > items.size()) std::abort();
      std::size_t end = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t there = items[i].placed ? 0 : items[i].bytes;
        if (items[i].offset < end || items[i].offset + xdr::padded(there) > encoded.size()) std::abort();
        end = items[i].offset + there;
      }
    }
    if (binding.expected_items != nullptr &&
        binding.expected_items(procedure, encoded, most_bytes) > most_bytes.size())
      std::abort();
  }
  if (binding.cap_sizes == nullptr && binding.withhold_in_results == nullptr) return;
  for (service::PlacedResults* const placed :
       {static_cast<service::PlacedResults*>(nullptr), static_cast<service::PlacedResults*>(&taken_out)}) {
    Bytes results(encoded.begin(), encoded.end());
    if (binding.cap_sizes != nullptr)
      binding.cap_sizes(results, {.data_bytes = kLongest, .message_bytes = kLongest}, placed);
    if (binding.withhold_in_results != nullptr) binding.withhold_in_results(results, {}, placed);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t most = data[0] + std::size_t{1};
  const Bytes sent(reinterpret_cast<const std::byte*>(data) + 1,
                   reinterpret_cast<const std::byte*>(data) + size);
  Bytes buffer(kBuffer);
  Bytes memory(kLongest);
  tcp::RecordStream stream(buffer, kLongest);
  std::vector<Bytes> records;
  std::size_t at = 0;
  for (bool usable = true; usable;) {
    switch (stream.next()) {
      case tcp::RecordStream::Step::Record:
      case tcp::RecordStream::Step::Skipped:
        records.emplace_back(stream.record().begin(), stream.record().end());
        stream.take_memory();
        break;
      case tcp::RecordStream::Step::NeedMemory:
        stream.lend(memory.data());
        break;
      case tcp::RecordStream::Step::Broken:
        usable = false;
        break;
      case tcp::RecordStream::Step::NeedBytes: {
        const auto room = stream.room();
        if (room.empty()) std::abort();
        const std::size_t here = std::min({room.size(), most, sent.size() - at});
        std::copy_n(sent.begin() + static_cast<std::ptrdiff_t>(at), here, room.begin());
        stream.received(here);
        at += here;
        usable = here > 0;
        break;
      }
    }
  }
  if (records != records_of(sent)) std::abort();
  for (const Bytes& record : records)
    for (const ulb::NamedProgram& named : ulb::named_programs())
      check_items(ulb::binding_or_plain(named.program, named.version), record);
  return 0;
}
