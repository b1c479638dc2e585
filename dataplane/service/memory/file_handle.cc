// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/memory/file_handle.h"

#include "dataplane/xdr/cursor.h"

namespace sluice::service::memory {
namespace {

constexpr std::uint32_t kFormat = 0x534c4832;  // "SLH2"
constexpr std::size_t kNamedBytes = 24;

static_assert(kNamedBytes + sizeof(std::uint64_t) == kHandleBytes);

}  // namespace

HandleBytes encode_handle(const HashKey& key, const FileHandle& handle) noexcept {
  HandleBytes out;
  xdr::store_u32(out.data(), kFormat);
  xdr::store_u32(out.data() + 4, handle.export_id);
  xdr::store_u32(out.data() + 8, handle.inode);
  xdr::store_u32(out.data() + 12, handle.generation);
  xdr::store_u64(out.data() + 16, handle.token);
  xdr::store_u64(out.data() + kNamedBytes, siphash(key, std::span(out).first(kNamedBytes)));
  return out;
}

std::optional<FileHandle> decode_handle(const HashKey& key, std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kHandleBytes || xdr::load_u32(bytes.data()) != kFormat) return std::nullopt;
  if (xdr::load_u64(bytes.data() + kNamedBytes) != siphash(key, bytes.first(kNamedBytes)))
    return std::nullopt;
  return FileHandle{xdr::load_u32(bytes.data() + 4), xdr::load_u32(bytes.data() + 8),
                    xdr::load_u32(bytes.data() + 12), xdr::load_u64(bytes.data() + 16)};
}

}  // namespace sluice::service::memory
