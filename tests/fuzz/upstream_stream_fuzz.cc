// SPDX-License-Identifier: Apache-2.0
//
// What an upstream sends, cut anywhere: records come out as they are in the stream, and all eligible items
// that bindings find lie within them.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "dataplane/rpc/message.h"
#include "dataplane/service/forward/record_stream.h"
#include "dataplane/ulb/bindings.h"

using namespace sluice;

namespace {

constexpr std::size_t kBuffer = 128;
constexpr std::uint32_t kLongest = 1024;

using Bytes = std::vector<std::byte>;

/// The same without a buffer: until a record cannot be, or has too many fragments. Of one that is too long,
/// its first word.
std::vector<Bytes> records_of(std::span<const std::byte> stream) {
  std::vector<Bytes> records;
  Bytes record;
  std::uint32_t fragments = 0;
  while (stream.size() >= 4) {
    const std::uint32_t mark = xdr::load_u32(stream.data());
    const std::size_t bytes = mark & 0x7fffffff;
    if (++fragments > forward::kMaxFragments || record.size() + bytes > forward::kMaxSkippedBytes) break;
    if (stream.size() - 4 < bytes) break;
    record.insert(record.end(), stream.begin() + 4, stream.begin() + 4 + static_cast<std::ptrdiff_t>(bytes));
    stream = stream.subspan(4 + bytes);
    if ((mark & 0x80000000) == 0) continue;
    if (record.size() > kLongest) record.resize(4);
    records.push_back(std::move(record));
    record.clear();
    fragments = 0;
  }
  return records;
}

void check_items(const rpcrdma::Binding& binding, std::span<const std::byte> encoded) {
  std::array<rpcrdma::Item, 8> items;
  const std::size_t procedures = std::max<std::size_t>(binding.procedures.size(), 2);
  for (std::uint32_t procedure = 0; procedure < procedures; ++procedure)
    for (const auto find : {binding.argument_items, binding.result_items}) {
      if (find == nullptr) continue;
      const std::size_t count = find(procedure, encoded, items);
      if (count > items.size()) std::abort();
      std::size_t end = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (items[i].offset < end || items[i].offset + xdr::padded(items[i].bytes) > encoded.size())
          std::abort();
        end = items[i].offset + items[i].bytes;
      }
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
  forward::RecordStream stream(buffer, kLongest);
  std::vector<Bytes> records;
  std::size_t at = 0;
  for (bool usable = true; usable;) {
    switch (stream.next()) {
      case forward::RecordStream::Step::Record:
      case forward::RecordStream::Step::Skipped:
        records.emplace_back(stream.record().begin(), stream.record().end());
        stream.take_memory();
        break;
      case forward::RecordStream::Step::NeedMemory:
        stream.lend(memory.data());
        break;
      case forward::RecordStream::Step::Broken:
        usable = false;
        break;
      case forward::RecordStream::Step::NeedBytes: {
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
      check_items(ulb::find_binding(named.program, named.version), record);
  return 0;
}
