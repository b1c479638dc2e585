// SPDX-License-Identifier: Apache-2.0
//
// Exports that the MOUNT service offers, which clients may mount them, and under which paths clients see
// them. Runs on the MOUNT thread; nothing here may block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "controlplane/onc_rpc/call_handler.h"
#include "dataplane/base/export_path.h"
#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/polled_service.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/config_block.h"

namespace sluice::mount {

/// Status codes mountstat3 (RFC 1813, appendix I).
enum class MountStatus : std::uint32_t {
  Ok = 0,
  Perm = 1,
  NoEnt = 2,
  Acces = 13,
  NotDir = 20,
  NameTooLong = 63,
  ServerFault = 10006
};

struct MountAnswer {
  MountStatus status = MountStatus::NoEnt;
  std::vector<std::byte> handle;
  std::vector<std::uint32_t> flavors{1, 0};  ///< authentication flavors by preference: AUTH_SYS, AUTH_NONE
};

/// Source of exports: the data plane, an upstream, or several upstreams (export_sources.h).
class Exports {
 public:
  using OnMount = Function<void(const MountAnswer&)>;
  /// Receives the list of paths, or null if it is not available.
  using OnList = Function<void(const std::vector<std::string>*)>;

  virtual ~Exports() = default;
  /// Mounts `path`. Like list(), calls `done` exactly once, before it returns or during a later poll().
  virtual void mount(const std::string& path, const onc_rpc::Asker& asker, OnMount done) = 0;
  /// Lists the paths that this client may mount, in the order in which they are shown.
  virtual void list(const onc_rpc::Asker& asker, OnList done) = 0;

  virtual void prepare(PollSet&) {}
  virtual void poll(const PollSet&, std::uint64_t /*now_ns*/) {}
};

/// Returns true if `client` is in one of the first `count` prefixes, or if the list is empty.
inline bool allowed(const std::array<segment::AllowedPrefix, segment::kMaxAllowed>& prefixes,
                    std::uint32_t count, const PeerAddress& client) {
  for (std::uint32_t i = 0; i < count && i < segment::kMaxAllowed; ++i)
    if (client.within(prefixes[i].address, prefixes[i].prefix_bits)) return true;
  return count == 0;
}

/// Returns an absolute path without empty and "." components and without a trailing slash, as servers treat
/// paths from fstab and autofs maps. Keeps "..". Returns nothing for a relative path.
inline std::optional<std::string> normalized_path(std::string_view path) {
  if (!path.starts_with('/')) return std::nullopt;
  std::string normalized;
  for (std::size_t at = 1; at < path.size();) {
    const std::size_t end = smaller_of(path.find('/', at), path.size());
    const std::string_view component = path.substr(at, end - at);
    if (!component.empty() && component != ".") normalized.append("/").append(component);
    at = end + 1;
  }
  return normalized.empty() ? "/" : normalized;
}

/// Returns the part of a normalized path before its first ".." component.
inline std::string_view before_parent(std::string_view normalized) {
  for (std::size_t at = normalized.find("/.."); at != std::string_view::npos;
       at = normalized.find("/..", at + 1))
    if (at + 3 == normalized.size() || normalized[at + 3] == '/')
      return normalized.substr(0, at == 0 ? 1 : at);
  return normalized;
}

/// Mapping between the paths of one of several upstreams and the paths that its clients see.
struct ExportPaths {
  std::string prefix;                ///< prefix of the paths that clients see; empty for none
  std::vector<std::string> exports;  ///< exported paths on the upstream; empty for all

  /// Returns the upstream's path for a path of clients, or nothing if the upstream does not have it. A path
  /// with ".." is never mapped, because it may lead out of the exports.
  std::optional<std::string> of_upstream(const std::string& path) const {
    const std::optional<std::string> normalized = normalized_path(path);
    if (!normalized || !is_plain_path(*normalized)) return std::nullopt;
    std::string plain = *normalized;
    if (!prefix.empty()) {
      if (!is_at_or_below(plain, prefix)) return std::nullopt;
      plain.erase(0, prefix.size());
      if (plain.empty()) plain = "/";
    }
    return has(plain) ? std::optional(plain) : std::nullopt;
  }
  /// Returns the path that clients see for an upstream's path, or nothing if it is not exported.
  std::optional<std::string> of_clients(const std::string& path) const {
    if (!is_plain_path(path) || !has(path)) return std::nullopt;
    return path == "/" && !prefix.empty() ? prefix : prefix + path;
  }

 private:
  bool has(const std::string& path) const {
    for (const std::string& each : exports)
      if (is_at_or_below(path, each)) return true;
    return exports.empty();
  }
};

inline ExportPaths export_paths(const segment::UpstreamConfig& upstream) {
  ExportPaths paths{.prefix = upstream.prefix, .exports = {}};
  for (const auto& path :
       std::span(upstream.exports).first(smaller_of(upstream.export_count, segment::kMaxUpstreamExports)))
    paths.exports.emplace_back(path.data());
  return paths;
}

}  // namespace sluice::mount
