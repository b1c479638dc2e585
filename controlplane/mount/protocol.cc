// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/protocol.h"

#include <algorithm>
#include <charconv>

namespace sluice::mount {
namespace {

constexpr std::uint32_t kMaxText = 1024;  ///< of each member of a registration

/// Steps over a list of groups, which are names.
void skip_groups(xdr::Reader& reader) {
  while (reader.boolean()) reader.string(kMaxName);
}

}  // namespace

void encode(xdr::Writer& writer, const MountAnswer& answer) {
  writer.u32(static_cast<std::uint32_t>(answer.status));
  if (answer.status != MountStatus::Ok) return;
  writer.opaque(answer.handle);
  writer.u32(static_cast<std::uint32_t>(answer.flavors.size()));
  for (const std::uint32_t flavor : answer.flavors) writer.u32(flavor);
}

std::optional<MountAnswer> decode_mount_answer(xdr::Reader& reader) {
  MountAnswer answer{.status = static_cast<MountStatus>(reader.u32()), .handle = {}, .flavors = {}};
  if (answer.status != MountStatus::Ok) return reader.ok() ? std::optional(answer) : std::nullopt;
  const auto handle = reader.opaque(kMaxHandle);
  answer.handle.assign(handle.begin(), handle.end());
  const std::uint32_t flavors = reader.u32();
  for (std::uint32_t i = 0; i < std::min(flavors, kMaxFlavors); ++i) answer.flavors.push_back(reader.u32());
  return reader.ok() ? std::optional(answer) : std::nullopt;
}

void encode(xdr::Writer& writer, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    writer.boolean(true);
    writer.string(path);
    writer.boolean(false);
  }
  writer.boolean(false);
}

std::size_t encoded_bytes(const std::vector<std::string>& paths) {
  std::size_t bytes = xdr::kUnit;
  for (const std::string& path : paths) bytes += 3 * xdr::kUnit + xdr::padded(path.size());
  return bytes;
}

std::optional<std::vector<std::string>> decode_paths(xdr::Reader& reader) {
  std::vector<std::string> paths;
  while (reader.boolean()) {
    paths.emplace_back(reader.string(kMaxPath));
    skip_groups(reader);
  }
  return reader.ok() ? std::optional(std::move(paths)) : std::nullopt;
}

void encode(xdr::Writer& writer, const Registration& registration) {
  writer.words(registration.program, registration.version);
  writer.string(registration.netid);
  writer.string(registration.address);
  writer.string(registration.owner);
}

std::optional<std::vector<Registration>> decode_registrations(xdr::Reader& reader) {
  std::vector<Registration> all;
  while (reader.boolean()) {
    Registration& one = all.emplace_back();
    one.program = reader.u32();
    one.version = reader.u32();
    one.netid = reader.string(kMaxText);
    one.address = reader.string(kMaxText);
    one.owner = reader.string(kMaxText);
  }
  return reader.ok() ? std::optional(std::move(all)) : std::nullopt;
}

std::uint16_t port_of_universal(std::string_view address) {
  std::uint32_t port = 0;
  for (const unsigned shift : {0u, 8u}) {
    const std::size_t dot = address.rfind('.');
    if (dot == std::string_view::npos) return 0;
    std::uint8_t byte = 0;
    const char* const end = address.data() + address.size();
    const auto [rest, error] = std::from_chars(address.data() + dot + 1, end, byte);
    if (error != std::errc{} || rest != end) return 0;
    port |= std::uint32_t{byte} << shift;
    address = address.substr(0, dot);
  }
  return static_cast<std::uint16_t>(port);
}

}  // namespace sluice::mount
