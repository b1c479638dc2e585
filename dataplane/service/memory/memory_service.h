// SPDX-License-Identifier: Apache-2.0
//
// The built-in NFS version 3 server, with exports in registered memory (RFC 1813; NFSACL version 3).
//
// Guarantees: a WRITE is visible when it is answered. The answer is FILE_SYNC, because no storage is more
// stable than the memory; contents are lost when the data plane ends. The write verifier changes with each
// restart, so that clients send unstable data again. Handles of files from before a restart are stale.
//
// Only the reactor that owns the exports may call; the constructor is used at setup. The service owns the
// file system and the reply cache. The device owns the memory, which must outlive the service. Errors are
// nfsstat3 in replies.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/api/service.h"
#include "dataplane/service/memory/duplicate_request_cache.h"
#include "dataplane/service/memory/filesystem.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::service::memory {

// XDR encoding and decoding of NFS version 3 types (RFC 1813, section 2). On an error the reader or writer
// fails, and its user checks ok().
inline constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
inline constexpr std::uint32_t kMaxNfsHandle = 64;

inline void put_status(xdr::Writer& out, Status status) noexcept {
  out.u32(static_cast<std::uint32_t>(status));
}

inline void put_time(xdr::Writer& out, std::uint64_t ns) noexcept {
  out.u32(static_cast<std::uint32_t>(ns / kNsPerSecond));
  out.u32(static_cast<std::uint32_t>(ns % kNsPerSecond));
}

inline std::uint64_t get_time(xdr::Reader& in) noexcept {
  const std::uint64_t seconds = in.u32();
  return seconds * kNsPerSecond + in.u32();
}

void put_fattr3(xdr::Writer& out, const Inode& inode, InodeNumber number) noexcept;
void put_post_op_attr(xdr::Writer& out, FileSystem& fs, InodeNumber number) noexcept;  ///< zero: none
void put_post_op_fh3(xdr::Writer& out, FileSystem& fs, InodeNumber number) noexcept;

/// Attributes before an operation, for wcc_data.
struct WccBefore {
  InodeNumber number = 0;  ///< zero: no attributes
  std::uint64_t size = 0;
  std::uint64_t mtime_ns = 0;
  std::uint64_t ctime_ns = 0;
};
WccBefore wcc_before(FileSystem& fs, InodeNumber number) noexcept;
void put_wcc_data(xdr::Writer& out, FileSystem& fs, const WccBefore& before) noexcept;

struct SetAttributes {
  std::optional<std::uint16_t> mode{};
  std::optional<std::uint32_t> uid{};
  std::optional<std::uint32_t> gid{};
  std::optional<std::uint64_t> size{};
  enum class Time : std::uint8_t { DontChange = 0, Server = 1, Client = 2 };
  Time atime = Time::DontChange;
  Time mtime = Time::DontChange;
  std::uint64_t atime_ns = 0;
  std::uint64_t mtime_ns = 0;
};
SetAttributes get_sattr3(xdr::Reader& in) noexcept;

/// Maximum and default of the values of rtmax and wtmax (RFC 1813, section 3.3.19), in bytes.
inline constexpr std::uint32_t kMaxTransferBytes = 4u << 20;
inline constexpr std::uint32_t kDefaultTransferBytes = 1u << 20;
inline constexpr std::uint32_t kMaxReaddirBytes = 64u << 10;
inline constexpr std::uint16_t kSetUid = 04000;
inline constexpr std::uint16_t kSetGid = 02000;
inline constexpr std::uint16_t kSticky = 01000;
/// Blocks of the largest transfer if it starts and ends inside blocks.
inline constexpr std::uint32_t kMaxTransferBlocks = kMaxTransferBytes / kLargeBytes + 1;

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

struct MemoryServiceConfig {
  std::uint32_t max_files = 100000;
  std::uint32_t max_io_bytes = kDefaultTransferBytes;  ///< of one READ or WRITE; at most kMaxTransferBytes
  HashKey handle_key{};
  std::vector<ExportOptions> exports{};  ///< the index is part of file handles; at most kMaxExports
};

struct ProcedureStatistics {
  std::uint64_t calls = 0;
  std::uint64_t errors = 0;  ///< calls answered with an nfsstat3 other than NFS3_OK
};

/// Counters of calls that were answered with an nfsstat3. NFSACL calls count in the sums only.
struct ExportStatistics : ProcedureStatistics {
  std::array<ProcedureStatistics, ulb::kNfs3Procedures> procedures{};
  std::uint64_t repeated = 0;  ///< calls answered from the reply cache
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
};

/// Index for calls whose file handle belongs to no export.
inline constexpr std::uint32_t kNoExport = kMaxExports;

class MemoryService final : public Service {
 public:
  /// Called at setup. Both regions are zeroed and used by nothing else. `region` holds the files' data;
  /// `zeros` starts with kLargeBytes that holes are read from (never written), followed by a few bytes as a
  /// sink for XDR round-up that a requester includes.
  MemoryService(rdma::MemoryRegion region, rdma::MemoryRegion zeros, const MemoryServiceConfig& config,
                FileSystem::Clock wall_clock);

  const service::Binding& binding() const noexcept override { return ulb::nfs3_binding(); }
  Placement place(Call& call) noexcept override;
  Execution execute(Call& call) noexcept override;
  void release(Call& call) noexcept override;
  bool background(std::uint64_t) noexcept override { return fs_.background(); }

  FileSystem& file_system() noexcept { return fs_; }
  const std::vector<ExportOptions>& exports() const noexcept { return exports_; }
  /// Swaps in `exports` between loop iterations and returns the old ones in the same vector, so that nothing
  /// is allocated or freed here. Files of a removed export stay in memory and reappear with it.
  void exchange_exports(std::vector<ExportOptions>& exports) noexcept;
  /// Returns the statistics of an export, or with kNoExport of calls whose handle belongs to none.
  const ExportStatistics& statistics(std::size_t export_id) const noexcept {
    static_cast<void>(SLUICE_INVARIANT(export_id < statistics_.size(), table_index));
    return statistics_[export_id];
  }
  HandleBytes root_handle(std::uint32_t export_id) const noexcept {
    return fs_.handle_of(fs_.root(export_id));
  }

  /// Returns the NFSACL service for the same exports, which must be registered separately. Owned by this
  /// service.
  Service& acl_service() noexcept { return acl_; }

 private:
  /// The caller's credential after squashing.
  struct Credential {
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::uint32_t gid_count = 0;
    std::uint32_t gids[rpc::kMaxAuthSysGids] = {};
  };
  enum Permission : std::uint16_t { kExecute = 1, kWrite = 2, kRead = 4 };

  /// Result of the common checks, with the credential and the object of the first file handle.
  struct Target {
    Status status = Status::Stale;
    InodeNumber number = 0;
    Credential credential;
    const ExportOptions* options = nullptr;
  };

  /// State of a READ or WRITE from its start to release().
  struct Transfer {
    InodeNumber inode;
    std::uint32_t generation;
    std::uint64_t offset;
    std::uint32_t bytes;
    std::uint16_t blocks;              ///< used entries of `pinned`, starting with the block of `offset`
    bool writing;                      ///< placed WRITE that is not committed yet
    bool by_root;                      ///< the set-id bits of the file are kept
    Block pinned[kMaxTransferBlocks];  ///< pinned blocks; zero for a hole
  };
  static_assert(sizeof(Transfer) <= kCallStateBytes);

  class AclService final : public Service {
   public:
    explicit AclService(MemoryService& memory) noexcept : memory_(memory) {}
    const service::Binding& binding() const noexcept override { return ulb::nfsacl3_binding(); }
    Execution execute(Call& call) noexcept override;

   private:
    void get_acl(Call& call) noexcept;
    void set_acl(Call& call) noexcept;
    MemoryService& memory_;
  };

  using Handler = void (MemoryService::*)(Call&, xdr::Reader&) noexcept;
  static const std::array<Handler, ulb::kNfs3Procedures> kHandlers;

  bool make_roots() noexcept;

  // Access control.
  bool authenticate(Call& call) noexcept;
  Credential squash(const Call& call, const ExportOptions& options) noexcept;
  Target target(Call& call, std::span<const std::byte> handle) noexcept;
  static bool in_group(const Credential& credential, std::uint32_t gid) noexcept;
  bool allows(const Inode& inode, const Credential& credential, std::uint16_t wanted) const noexcept;
  static bool owns(const Inode& inode, const Credential& credential) noexcept {
    return credential.uid == 0 || credential.uid == inode.uid;
  }
  Status may_search(const Target& directory, std::string_view name) const noexcept;
  Status may_change_directory(const Target& directory, std::string_view name) const noexcept;
  bool is_taken(const Target& directory, std::string_view name) const noexcept;
  Status may_add(const Target& directory, std::string_view name) const noexcept;
  Status may_remove(const Target& directory, const Inode& victim) const noexcept;
  Status set_attributes(const Target& target, const SetAttributes& set) noexcept;
  static void strip_set_id(Inode& inode) noexcept;

  // Procedures in the order of RFC 1813, section 3.3.
  void null(Call& call, xdr::Reader& in) noexcept;
  void getattr(Call& call, xdr::Reader& in) noexcept;
  void setattr(Call& call, xdr::Reader& in) noexcept;
  void lookup(Call& call, xdr::Reader& in) noexcept;
  void access(Call& call, xdr::Reader& in) noexcept;
  void readlink(Call& call, xdr::Reader& in) noexcept;
  void read(Call& call, xdr::Reader& in) noexcept;
  void write(Call& call, xdr::Reader& in) noexcept;
  void create(Call& call, xdr::Reader& in) noexcept;
  void mkdir(Call& call, xdr::Reader& in) noexcept;
  void symlink(Call& call, xdr::Reader& in) noexcept;
  void mknod(Call& call, xdr::Reader& in) noexcept;
  void remove(Call& call, xdr::Reader& in) noexcept;
  void rmdir(Call& call, xdr::Reader& in) noexcept;
  void rename(Call& call, xdr::Reader& in) noexcept;
  void link(Call& call, xdr::Reader& in) noexcept;
  void readdir(Call& call, xdr::Reader& in) noexcept;
  void readdirplus(Call& call, xdr::Reader& in) noexcept;
  void fsstat(Call& call, xdr::Reader& in) noexcept;
  void fsinfo(Call& call, xdr::Reader& in) noexcept;
  void pathconf(Call& call, xdr::Reader& in) noexcept;
  void commit(Call& call, xdr::Reader& in) noexcept;

  // Helpers shared by the procedures.
  FileSystem::Found make(const Target& directory, std::string_view name, NewInode what,
                         const SetAttributes& set) noexcept;
  void add_file_data(Call& call, InodeNumber number, std::uint64_t offset, std::uint32_t bytes) noexcept;
  Status check_write(const Target& target, std::uint64_t offset, std::uint32_t bytes) noexcept;
  void write_ok(Call& call, const WccBefore& before, std::uint32_t count) noexcept;
  void commit_placed(Call& call) noexcept;
  void end_write(Inode& inode, std::uint64_t end, bool by_root) noexcept;
  void end_create(Call& call, Status status, InodeNumber made, const WccBefore& before) noexcept;
  void end_with_wcc(Call& call, Status status, const WccBefore& before) noexcept;
  void end_with_attr(Call& call, Status status, InodeNumber number) noexcept;
  xdr::Writer* begin_of_object(Call& call, xdr::Reader& in) noexcept;
  void end_removal(Call& call, xdr::Reader& in, bool directory) noexcept;
  void list_directory(Call& call, xdr::Reader& in, bool plus) noexcept;
  void succeed(Call& call, Status status) noexcept;
  bool answer_again(Call& call) noexcept;
  DuplicateRequestCache::Reader reader_of_reply(const Call& call) const noexcept;

  FileSystem fs_;
  const std::uint32_t max_io_bytes_;  ///< maximum data of one READ or WRITE
  rdma::MemoryRegion zeros_;          ///< kLargeBytes of zeros, read for holes
  rdma::MemoryRegion pad_;            ///< sink of round-up bytes
  std::vector<ExportOptions> exports_;
  std::vector<ExportStatistics> statistics_;
  std::array<std::byte, 8> write_verifier_;
  std::uint32_t current_export_ = kNoExport;
  DuplicateRequestCache replies_;
  bool keep_reply_ = false;  ///< the call being executed goes into the reply cache
  DuplicateRequestCache::Key reply_key_;
  DuplicateRequestCache::Effect effect_ =
      DuplicateRequestCache::Effect::Changed;  ///< effect of that call if it succeeds
  AclService acl_;
};

}  // namespace sluice::service::memory
