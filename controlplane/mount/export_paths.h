// SPDX-License-Identifier: Apache-2.0
//
// The part of the exports that one of several upstreams has: what clients know its paths as. Pure; any thread.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/export_path.h"
#include "dataplane/segment/config_block.h"

namespace sluice::mount {

struct ExportPaths {
  std::string prefix;                ///< of the paths on the clients' side; empty: none
  std::vector<std::string> exports;  ///< those that are its part, by its own paths; empty: all

  /// Its own path for one of the clients'; none: it is not its part. A path that is not plain is nobody's, as it may lead
  /// out of the part.
  std::optional<std::string> of_upstream(const std::string& path) const {
    std::string plain = path;
    while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
    if (!is_plain_path(plain)) return std::nullopt;
    if (!prefix.empty()) {
      if (!is_at_or_below(plain, prefix)) return std::nullopt;
      plain.erase(0, prefix.size());
      if (plain.empty()) plain = "/";
    }
    return has(plain) ? std::optional(plain) : std::nullopt;
  }
  /// What clients know its own path as; none: it is not its part.
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
