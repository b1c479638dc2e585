// SPDX-License-Identifier: Apache-2.0
//
// Exports as the services see them: who may use an export, with which credential, and what was counted.
//
// The functions are pure and may be called on any reactor. A list of exports and its statistics belong to one
// reactor; other threads may read the statistics. Sizes in bytes; errors are nfsstat3.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/api/service.h"
#include "dataplane/service/memory/inode.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::service::memory {

struct AddressPrefix {
  PeerAddress address;
  std::uint32_t bits = 0;
  bool contains(const PeerAddress& peer) const noexcept { return peer.within(address, bits); }
};

struct ExportOptions {
  std::string path;
  bool in_use = true;  ///< false: handles are stale until the path is exported again
  bool read_only = false;
  bool root_squash = true;
  bool all_squash = false;
  std::uint32_t anonuid = 65534;
  std::uint32_t anongid = 65534;
  std::uint64_t quota_bytes = 0;
  std::vector<AddressPrefix> allowed{};  ///< empty: every client
  std::vector<HostName> hosts{};         ///< empty: every host, authenticated or not

  /// Returns true for clients that both lists allow. Bounded by the lengths of the lists.
  bool serves(const PeerAddress& peer, const HostName& host) const noexcept {
    bool address = allowed.empty();
    for (const AddressPrefix& prefix : allowed) address = address || prefix.contains(peer);
    return address && (hosts.empty() || (!host.empty() && has_element(hosts, host)));
  }
};

/// A count that one reactor increases and any thread may read.
class SharedCount {
 public:
  void add(std::uint64_t count) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct ProcedureStatistics {
  SharedCount calls;
  SharedCount errors;  ///< calls answered with an nfsstat3 other than NFS3_OK
};

/// Counters of calls that were answered with an nfsstat3. NFSACL calls count in the sums only.
struct ExportStatistics : ProcedureStatistics {
  std::array<ProcedureStatistics, ulb::kNfs3Procedures> procedures;
  SharedCount repeated;  ///< calls answered from the reply cache
  SharedCount read_bytes;
  SharedCount written_bytes;

  void count(const rpc::CallHeader& call, Status status) noexcept {
    const std::uint64_t failed = status != Status::Ok ? 1 : 0;
    calls.add(1);
    if (failed != 0) errors.add(1);
    if (call.program != ulb::kNfsProgram) return;
    ProcedureStatistics& procedure = procedures[call.procedure];
    procedure.calls.add(1);
    if (failed != 0) procedure.errors.add(1);
  }
};

/// Index for calls whose file handle belongs to no export.
inline constexpr std::uint32_t kNoExport = kMaxExports;

/// The caller's credential after squashing.
struct Credential {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t gid_count = 0;
  std::uint32_t gids[rpc::kMaxAuthSysGids] = {};
};
enum Permission : std::uint16_t { kExecute = 1, kWrite = 2, kRead = 4 };

/// Returns whether a call's credential can be served: AUTH_NONE, or an AUTH_SYS that can be decoded.
bool is_served(const rpc::OpaqueAuth& credential) noexcept;
/// Returns the credential of a call as the export's options map it.
Credential squash(const Call& call, const ExportOptions& options) noexcept;

inline bool in_group(const Credential& credential, std::uint32_t gid) noexcept {
  return credential.gid == gid || has_element(std::span(credential.gids, credential.gid_count), gid);
}
inline bool owns(const FileAttributes& file, const Credential& credential) noexcept {
  return credential.uid == 0 || credential.uid == file.uid;
}
/// Returns whether the mode grants all permissions of `wanted`.
bool allows(const FileAttributes& file, const Credential& credential, std::uint16_t wanted) noexcept;

inline bool is_dot(std::string_view name) noexcept {
  return name == "." || name == "..";
}
/// Checks if an entry can have this name (RFC 1813, section 3.2).
Status check_name(std::string_view name) noexcept;
/// Checks if the caller may look up `name` in `directory`.
Status may_search(const FileAttributes& directory, const Credential& credential,
                  std::string_view name) noexcept;

}  // namespace sluice::service::memory
