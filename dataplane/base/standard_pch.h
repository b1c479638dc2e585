// SPDX-License-Identifier: Apache-2.0
//
// Precompiled header with the standard headers that many sources include. A source still includes the headers
// that it uses (tests/tidy/build_lines.py compiles it without this one).
#ifndef SLUICE_PCH_STANDARD_H  // #pragma once in a main file is a warning
#define SLUICE_PCH_STANDARD_H

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#endif
