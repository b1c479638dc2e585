// SPDX-License-Identifier: Apache-2.0
//
// Mapping between the paths of one of several upstreams and the paths that its clients see. Pure functions;
// any thread.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/export_path.h"
#include "dataplane/segment/config_block.h"

namespace sluice::mount {

/// Returns an absolute path without empty and "." components and without a trailing slash, as servers treat
/// paths from fstab and autofs maps. Keeps "..". Returns nothing for a relative path.
inline std::optional<std::string> normalized_path(std::string_view path) {
  if (!path.starts_with('/')) return std::nullopt;
  std::string normalized;
  for (std::size_t at = 1; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
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
    return exports.empty() || std::any_of(exports.begin(), exports.end(), [&](const std::string& each) {
             return is_at_or_below(path, each);
           });
  }
};

inline ExportPaths export_paths(const segment::UpstreamConfig& upstream) {
  ExportPaths paths{.prefix = upstream.prefix, .exports = {}};
  for (const auto& path :
       std::span(upstream.exports).first(std::min(upstream.export_count, segment::kMaxUpstreamExports)))
    paths.exports.emplace_back(path.data());
  return paths;
}

}  // namespace sluice::mount
