// SPDX-License-Identifier: Apache-2.0
//
// Messages of NLM version 4 (RFC 1813, appendix II) and of NSM version 1 (X/Open XNFS, chapter 11). Decoders
// treat their input as hostile: every length is bounded. Value types; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/xdr/cursor.h"

namespace sluice::locks {

using Bytes = std::vector<std::byte>;
/// Orders by length first. The vector's own order triggers a false warning of GCC 12.
struct BytesLess {
  bool operator()(const Bytes& a, const Bytes& b) const {
    if (a.size() != b.size()) return a.size() < b.size();
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i]) return a[i] < b[i];
    return false;
  }
};

inline constexpr std::uint32_t kNlmProgram = 100021;
inline constexpr std::uint32_t kNlmVersion = 4;
enum NlmProcedure : std::uint32_t {
  kNull = 0,
  kTest = 1,
  kLock = 2,
  kCancel = 3,
  kUnlock = 4,
  kGranted = 5,
  kGrantedMsg = 10,
  kGrantedRes = 15,
  kNmLock = 22,
  kFreeAll = 23,
};

/// Returns true for the procedures that request a lock.
constexpr bool is_lock(std::uint32_t procedure) {
  return procedure == kLock || procedure == kNmLock;
}

inline constexpr std::uint32_t kNsmProgram = 100024;
inline constexpr std::uint32_t kNsmVersion = 1;
enum NsmProcedure : std::uint32_t { kNsmNull = 0, kNsmStat = 1, kNsmMon = 2, kNsmNotify = 6 };
inline constexpr std::uint32_t kNsmStatFail = 1;

inline constexpr std::uint32_t kMaxString = 1024;  ///< LM_MAXSTRLEN, limit of names and netobj
inline constexpr std::uint32_t kMaxHandle = 64;    ///< FHSIZE3
/// Maximum size of arguments: a cookie, two netobj and a name, with their lengths, and ten words.
inline constexpr std::size_t kMaxArgumentsBytes =
    3 * (xdr::kUnit + kMaxString) + xdr::kUnit + kMaxHandle + 10 * xdr::kUnit;

/// Status codes nlm4_stats.
enum class Stat : std::uint32_t {
  Granted = 0,
  Denied = 1,
  DeniedNoLocks = 2,
  Blocked = 3,
  DeniedGracePeriod = 4,
  Failed = 9,
};

/// A lock, nlm4_lock.
struct Lock {
  std::string caller;
  Bytes handle;
  Bytes owner;  ///< owner handle (oh)
  std::uint32_t svid = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  ///< zero extends to the end of the file
  bool operator==(const Lock&) const = default;
};

/// Arguments of TEST, LOCK, CANCEL, UNLOCK, GRANTED and NM_LOCK. Each procedure uses some of the members.
struct LockArguments {
  Bytes cookie;
  bool block = false;
  bool exclusive = false;
  Lock lock;
  bool reclaim = false;
  std::uint32_t state = 0;
  bool operator==(const LockArguments&) const = default;
};

/// Holder of a lock, nlm4_holder.
struct Holder {
  bool exclusive = false;
  std::uint32_t svid = 0;
  Bytes owner;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  bool operator==(const Holder&) const = default;
};

/// Results nlm4_res and nlm4_testres.
struct LockResult {
  Bytes cookie;
  Stat stat = Stat::Granted;
  std::optional<Holder> holder;  ///< set if a TEST is denied
};

/// State of a host after a restart, nlm4_notify and stat_chge.
struct HostState {
  std::string name;
  std::uint32_t state = 0;
};

void encode(xdr::Writer& writer, std::uint32_t procedure, const LockArguments& arguments);
/// Decodes arguments. Returns nothing if they are malformed.
std::optional<LockArguments> decode_arguments(xdr::Reader& reader, std::uint32_t procedure);

/// Encodes results. `test` selects the format of TEST.
void encode(xdr::Writer& writer, const LockResult& result, bool test);
std::optional<LockResult> decode_result(xdr::Reader& reader, bool test);

void encode(xdr::Writer& writer, const HostState& state);
std::optional<HostState> decode_host_state(xdr::Reader& reader);

}  // namespace sluice::locks
