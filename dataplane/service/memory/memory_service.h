// SPDX-License-Identifier: Apache-2.0
//
// The built-in NFS version 3 server, with exports in registered memory (RFC 1813; NFSACL version 3).
//
// Guarantees: a WRITE is visible when it is answered. The answer is FILE_SYNC, because no storage is more
// stable than the memory; contents are lost when the data plane ends. The write verifier changes with each
// restart, so that clients send unstable data again. Handles of files from before a restart are stale.
//
// Only the reactor that owns the exports may call; the constructor is used at setup. Other reactors answer
// what changes nothing by a FileReader. The service owns the file system and the reply cache. The device owns
// the memory, which must outlive the service. Errors are nfsstat3 in replies.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/api/service.h"
#include "dataplane/service/memory/duplicate_request_cache.h"
#include "dataplane/service/memory/exports.h"
#include "dataplane/service/memory/filesystem.h"
#include "dataplane/service/memory/read_procedures.h"
#include "dataplane/service/memory/wire.h"
#include "dataplane/ulb/nfs3.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::service::memory {

struct MemoryServiceConfig {
  std::uint32_t max_files = 100000;
  std::uint32_t max_io_bytes = kDefaultTransferBytes;  ///< of one READ or WRITE; at most kMaxTransferBytes
  HashKey handle_key{};
  std::vector<ExportOptions> exports{};  ///< the index is part of file handles; at most kMaxExports
};

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
  const FileSystem& file_system() const noexcept { return fs_; }
  /// Returns what a reader needs besides the files. The reader sets the members that are its own.
  ReadContext read_context() const noexcept { return context_; }
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

  class OwnFiles;
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
  Target target(Call& call, std::span<const std::byte> handle) noexcept;
  Status may_change_directory(const Target& directory, std::string_view name) const noexcept;
  bool is_taken(const Target& directory, std::string_view name) const noexcept;
  Status may_add(const Target& directory, std::string_view name) const noexcept;
  Status may_remove(const Target& directory, const Inode& victim) const noexcept;
  Status set_attributes(const Target& target, const SetAttributes& set) noexcept;
  static void strip_set_id(Inode& inode) noexcept;

  // Procedures in the order of RFC 1813, section 3.3.
  void null(Call& call, xdr::Reader& in) noexcept;
  void read_only(Call& call, xdr::Reader& in) noexcept;  ///< all in read_procedures.h
  void setattr(Call& call, xdr::Reader& in) noexcept;
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

  // Helpers shared by the procedures.
  FileSystem::Found make(const Target& directory, std::string_view name, NewInode what,
                         const SetAttributes& set) noexcept;
  Status check_write(const Target& target, std::uint64_t offset, std::uint32_t bytes) noexcept;
  void write_ok(Call& call, const WccBefore& before, std::uint32_t count) noexcept;
  void commit_placed(Call& call) noexcept;
  void end_write(InodeNumber number, std::uint64_t end, bool by_root) noexcept;
  void end_create(Call& call, Status status, InodeNumber made, const WccBefore& before) noexcept;
  void end_with_wcc(Call& call, Status status, const WccBefore& before) noexcept;
  void end_with_attr(Call& call, Status status, InodeNumber number) noexcept;
  void end_removal(Call& call, xdr::Reader& in, bool directory) noexcept;
  void list_directory(Call& call, xdr::Reader& in, bool plus) noexcept;
  void succeed(Call& call, Status status) noexcept;
  bool answer_again(Call& call) noexcept;
  DuplicateRequestCache::Reader reader_of_reply(const Call& call) const noexcept;

  FileSystem fs_;
  const std::uint32_t max_io_bytes_;  ///< maximum data of one READ or WRITE
  rdma::MemoryRegion pad_;            ///< sink of round-up bytes
  std::vector<ExportOptions> exports_;
  std::vector<ExportStatistics> statistics_;
  std::array<std::byte, 8> write_verifier_;
  const ReadContext context_;
  std::uint32_t current_export_ = kNoExport;
  DuplicateRequestCache replies_;
  bool keep_reply_ = false;  ///< the call being executed goes into the reply cache
  DuplicateRequestCache::Key reply_key_;
  DuplicateRequestCache::Effect effect_ =
      DuplicateRequestCache::Effect::Changed;  ///< effect of that call if it succeeds
  AclService acl_;
};

}  // namespace sluice::service::memory
