// SPDX-License-Identifier: Apache-2.0
//
// Paths of exports in configurations. Pure functions; any thread.
#pragma once

#include <string_view>

namespace sluice {

/// Returns whether a path is absolute and has no empty component, "." or "..": "/", "/a", "/a/b".
inline bool is_plain_path(std::string_view path) {
  if (path.empty() || path[0] != '/') return false;
  if (path.size() == 1) return true;
  for (std::size_t at = 1; at <= path.size();) {
    const std::size_t end = path.find('/', at) < path.size() ? path.find('/', at) : path.size();
    const std::string_view component = path.substr(at, end - at);
    if (component.empty() || component == "." || component == "..") return false;
    at = end + 1;
  }
  return path.back() != '/';
}

/// Returns whether `path` is `root` or below it. Both are plain paths.
inline bool is_at_or_below(std::string_view path, std::string_view root) {
  if (root == "/") return true;
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

}  // namespace sluice
